"""What a draft's first weights are, what they cost and what they are worth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specrl.types import Metrics

RECORD_FILE = "init.json"


def written_lengths(lengths: Sequence[float]) -> str:
    """ "1.42 (k=1), 1.61 (k=2)"."""
    return ", ".join(f"{length:.2f} (k={k})" for k, length in enumerate(lengths, start=1))


def with_lengths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values read from JSON, their acceptance lengths the tuples that were written."""
    lengths = {key: tuple(values[key]) for key in ("acceptance_before", "acceptance")}
    return {**values, **lengths}


@dataclass(frozen=True)
class InitRecord:
    """What an init is and what it cost; `init.json` in the draft's folder.

    Acceptance lengths are those of k = 1, 2, ... on held-out prompts, for drafts made as `sampling`
    says; empty where none was estimated. `wall_s` counts the start of processes in. `coverage` is
    the share of the response tokens (of the prompts' without any) that the draft can propose.
    """

    init: str
    policy: str
    built: str
    prompt_source: str
    prompts: int
    sampling: str
    responses: int = 0
    response_tokens: int = 0
    coverage: float = 0.0
    heldout_prompts: int = 0
    heldout_tokens: int = 0
    generation_s: float = 0.0
    fit_s: float = 0.0
    wall_s: float = 0.0
    trained_tokens: int = 0
    loss: float | None = None
    acceptance_before: tuple[float, ...] = ()
    acceptance: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """What the init took; of a build that a kill ended only what it left counts."""
        return max(self.wall_s, self.generation_s + self.fit_s)

    def acceptance_length(self, k: int) -> float | None:
        """The estimate for drafts of `k` tokens, or of the longest it was made for."""
        return self.acceptance[min(k, len(self.acceptance)) - 1] if self.acceptance else None

    def lines(self) -> list[str]:
        """What a person wants to know, a line each."""
        lines = [
            f"init={self.init} for {self.policy}, built {self.built}",
            f"{self.prompts} prompts ({self.prompt_source}), {self.responses} responses, "
            f"{self.response_tokens} response tokens, {self.coverage:.1%} of them draftable",
            f"{self.seconds:.0f} s, of which generation {self.generation_s:.0f} and "
            f"fit {self.fit_s:.0f}",
        ]
        if self.acceptance:
            lines += [
                f"acceptance length on {self.heldout_prompts} held-out prompts "
                f"({self.heldout_tokens} tokens), {self.sampling} drafts: "
                f"{written_lengths(self.acceptance)}",
                f"before the fit: {written_lengths(self.acceptance_before)}",
            ]
        return lines

    def metrics(self, k: int) -> Metrics:
        """`init/*` of a run with drafts of `k` tokens; the estimate is for drafts sampled so."""
        metrics = {
            "init/seconds": self.seconds,
            "init/tokens": float(self.response_tokens),
            "init/prompts": float(self.prompts),
        }
        length = self.acceptance_length(k)
        name = f"init/acceptance_length/{self.sampling}"
        return metrics if length is None else metrics | {name: length}


def write_record(folder: Path, record: InitRecord) -> None:
    """Puts the record beside the draft."""
    values = asdict(record) | {"seconds": record.seconds}
    (folder / RECORD_FILE).write_text(json.dumps(values, indent=1) + "\n")


def read_record(folder: Path) -> InitRecord | None:
    """The record of a draft folder; None where specrl did not make it."""
    try:
        values = json.loads((folder / RECORD_FILE).read_text())
        del values["seconds"]
        return InitRecord(**with_lengths(values))
    except (OSError, ValueError, KeyError, TypeError):
        return None
