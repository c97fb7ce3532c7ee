"""The YAML tree as data: groups, their choices, what each says of itself."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

PACKAGE = "specrl.conf"
OVERLAYS = ("experiment", "sweep", "debug")


@dataclass(frozen=True)
class Choice:
    """One YAML file of a group; `about` is its first comment line, `text` the whole file."""

    group: str
    name: str
    about: str
    text: str


@cache
def groups() -> dict[str, list[Choice]]:
    """Every group in the order of train.yaml, with its choices by name."""
    root = files(PACKAGE)
    return {group: _choices(root / group, group) for group in defaults()}


@cache
def defaults() -> dict[str, str | None]:
    """The default choice of every group; None where a group may stay empty."""
    entries = yaml.safe_load((files(PACKAGE) / "train.yaml").read_text())["defaults"]
    pairs = [entry for entry in entries if isinstance(entry, dict)]
    return {key: value for pair in pairs for key, value in pair.items() if " " not in key}


def options(group: str) -> list[str]:
    """Names of a group's choices."""
    return [choice.name for choice in groups()[group]]


def budget(choice: Choice) -> str:
    """What a sweep says that it costs, in one line; "" where it does not say."""
    _, mark, rest = choice.text.partition("# Budget ")
    lines = rest.partition("\n\n")[0].partition("\n# On ")[0].splitlines()
    return mark.lstrip("# ").lower() + " ".join(line.lstrip("# ") for line in lines)


def _choices(folder: Traversable, group: str) -> list[Choice]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    texts = {name.removesuffix(".yaml"): (folder / name).read_text() for name in names}
    return [Choice(group, name, _about(text), text) for name, text in texts.items()]


def _about(text: str) -> str:
    comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    return next((line for line in comments if not line.startswith("@")), "")
