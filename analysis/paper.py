"""The paper's printed numbers (arXiv:2604.26779), typed, from data/paper.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

SOURCE = "arXiv:2604.26779"
DATA = Path(__file__).parent / "data" / "paper.yaml"
REGIMES = ("rl_think", "rl_zero")
TITLES = {"rl_think": "RL-Think", "rl_zero": "RL-Zero"}


@dataclass(frozen=True)
class StageSeconds:
    """A column of Table 1: mean seconds per RL step. `step_speedup` None for autoregressive."""

    data: float
    prepare: float
    generation: float
    logprob: float
    training: float
    overall: float
    step_speedup: float | None = None

    @property
    def stages(self) -> dict[str, float]:
        return {
            "data": self.data,
            "prepare": self.prepare,
            "generation": self.generation,
            "logprob": self.logprob,
            "training": self.training,
        }


@dataclass(frozen=True)
class Drafting:
    """Acceptance length (bonus token counted) and generation speedup over autoregressive.

    `generation` is seconds per step, where printed; `acceptance` None for autoregressive.
    """

    acceptance: float | None
    speedup: float
    generation: float | None = None


@dataclass(frozen=True)
class AsyncSeconds:
    """Exposed generation and step seconds at policy lag 1."""

    exposed_generation: float
    step: float
    step_speedup: float | None = None


@dataclass(frozen=True)
class Curve:
    """Figure 2 in figures: speedups of generation and accuracy over a whole run."""

    steps: int
    mean_speedup: float
    max_speedup: float
    accuracy_start: float
    accuracy_end: float


@dataclass(frozen=True)
class PrintedCell:
    """A printed cell of Figure 3 or 4; None is not printed (or not part of that figure)."""

    rollout: float
    k: int | None = None
    acceptance: float | None = None
    end_to_end: float | None = None
    gpus: int | None = None
    lag: int | None = None


@dataclass(frozen=True)
class Headline:
    """The 2.5x claim: its operating point, rollout and end-to-end speedup."""

    gpus: int
    lag: int
    rollout: float
    end_to_end: float


@dataclass(frozen=True)
class Paper:
    """Tables by regime ("rl_think", "rl_zero"); `stages[regime]` has "ar" and "spec".

    `drafters` has "ar", "ngram", "eagle3"; `inits` "ultrachat", "dapo"; `lengths` k = 3, 5, 7;
    `online` (init, adaptation). `async_rl_think` has "ar" and "spec". Figure 3's grid is `grid_k`
    x `grid_acceptance`; `scale_8b` is the band of all sixteen 8B cells of Figure 4.
    """

    stages: Mapping[str, Mapping[str, StageSeconds]]
    drafters: Mapping[str, Mapping[str, Drafting]]
    inits: Mapping[str, Mapping[str, Drafting]]
    lengths: Mapping[str, Mapping[int, Drafting]]
    online: Mapping[str, Mapping[tuple[str, str], Drafting]]
    async_rl_think: Mapping[str, AsyncSeconds]
    curves: Mapping[str, Curve]
    acceptance_cells: tuple[PrintedCell, ...]
    generation_share: float
    grid_k: tuple[int, ...]
    grid_acceptance: tuple[float, ...]
    scale_cells: tuple[PrintedCell, ...]
    scale_8b: tuple[float, float]
    headline: Headline


@cache
def load_paper() -> Paper:
    """Raises `TypeError` or `KeyError` when the shipped file lacks a figure."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    grid = data["figure3"]["grid"]
    band = data["figure4"]["qwen3_8b"]
    return Paper(
        stages=_nested(data["table1_stage_seconds"], StageSeconds),
        drafters=_nested(data["table2_drafters"], Drafting),
        inits=_nested(data["table3_init"], Drafting),
        lengths=_nested(data["table4_draft_length"], Drafting),
        online={
            regime: {
                (init, adaptation): Drafting(**cell)
                for init, variants in inits.items()
                for adaptation, cell in variants.items()
            }
            for regime, inits in data["table5_online"].items()
        },
        async_rl_think={k: AsyncSeconds(**v) for k, v in data["async_rl_think"].items()},
        curves={k: Curve(**v) for k, v in data["figure2"].items()},
        acceptance_cells=tuple(PrintedCell(**cell) for cell in data["figure3"]["cells"]),
        generation_share=data["figure3"]["generation_share"],
        grid_k=tuple(grid["k"]),
        grid_acceptance=tuple(map(float, grid["acceptance"])),
        scale_cells=tuple(PrintedCell(**c) for c in data["figure4"]["qwen3_235b_a22b"]),
        scale_8b=(band["min"], band["max"]),
        headline=Headline(**data["headline"]),
    )


def _nested(data: Mapping[str, Mapping[Any, Any]], record: type) -> dict[str, dict[Any, Any]]:
    return {
        regime: {name: record(**cell) for name, cell in cells.items()}
        for regime, cells in data.items()
    }
