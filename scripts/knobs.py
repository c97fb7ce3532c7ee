"""What `make knobs` runs: every config key with type, default and meaning, as Markdown."""

import sys
from itertools import groupby

from specrl.config.knobs import Knob, all_knobs


def table(title: str, knobs: list[Knob]) -> str:
    rows = [
        f"| `{knob.key}` | {cell(knob.type)} | `{knob.default}` | {cell(knob.help)} |"
        for knob in knobs
    ]
    return "\n".join(
        [f"## {title}", "", "| key | type | default | meaning |", "|---|---|---|---|", *rows]
    )


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    groups = groupby(all_knobs(), key=lambda knob: knob.choice or "every run")
    tables = [table(title, list(knobs)) for title, knobs in groups]
    sys.stdout.write("# Knobs\n\n" + "\n\n".join(tables) + "\n")


if __name__ == "__main__":
    main()
