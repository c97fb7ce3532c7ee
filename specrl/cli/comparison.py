"""The table that compares the arms of a sweep, printed when the sweep ends."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from specrl.algo.comparison import STAGES, Arm, arm_of, speedup_over
from specrl.errors import UserError
from specrl.telemetry.jsonl import INFO_FILE, RunLog, read_run

BASELINE = "none"


class PrintComparison(Callback):
    """Hydra callback: remembers the run folder of each point and compares them at the end."""

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """The task function returns its run folder; a failed point has none."""
        del config, kwargs
        if job_return.status == JobStatus.COMPLETED and job_return.return_value:
            self._folders.append(Path(job_return.return_value))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Prints the table once two points have steps to compare."""
        del config, kwargs
        arms = arms_in(self._folders)
        if len(arms) > 1:
            Console().print(comparison_table(arms))


def arms_in(folders: Sequence[Path]) -> list[Arm]:
    """The runs with at least one finished step, autoregressive first.

    An arm is named after its drafter, and after the overrides that tell it from the others.
    """
    logs = [read_run(folder) for folder in dict.fromkeys(folders) if (folder / INFO_FILE).exists()]
    infos = [log.info for log in logs if log.info is not None]
    shared = set.intersection(*(set(info.overrides) for info in infos)) if infos else set()
    arms = []
    for log in logs:
        try:
            arms.append(arm_of(_name(log, shared), [record.metrics for record in log.records]))
        except UserError:
            continue
    return sorted(arms, key=lambda arm: not _is_baseline(arm))


def _is_baseline(arm: Arm) -> bool:
    return arm.name.split()[0] == BASELINE


def _name(log: RunLog, shared: set[str]) -> str:
    if log.info is None:
        return "?"
    own = [word for word in log.info.overrides if word not in shared]
    others = [word for word in own if not word.startswith("drafter=")]
    return " ".join([str(log.info.config["drafter"]["name"]), *others])


def comparison_table(arms: Sequence[Arm]) -> Table:
    """Stage seconds and acceptance; speedups where one arm is autoregressive, so matched to all."""
    baselines = [arm for arm in arms if _is_baseline(arm)]
    baseline = baselines[0] if len(baselines) == 1 else None
    table = Table(
        title="Matched arms: mean per step, the first step left out",
        caption="generation speedup per token; bound: Amdahl's, from tokens per engine step",
    )
    table.add_column("")
    for arm in arms:
        table.add_column(arm.name, justify="right")
    for label, cells in _rows(arms, baseline):
        table.add_row(label, *cells)
    return table


def _rows(arms: Sequence[Arm], baseline: Arm | None) -> list[tuple[str, list[str]]]:
    rows = [(f"{stage} (s)", [_number(a.stage_s[stage]) for a in arms]) for stage in STAGES]
    rows += [
        ("step (s)", [_number(a.step_s) for a in arms]),
        ("steps", [str(a.steps) for a in arms]),
        ("tokens a step", [f"{a.tokens:.0f}" for a in arms]),
        ("generation (tokens/s)", [_number(a.generation_tokens_per_s, 0) for a in arms]),
        ("generation share R", [_number(a.generation_share) for a in arms]),
        ("acceptance length", [_number(a.acceptance_length) for a in arms]),
        ("tokens per engine step", [_number(a.tokens_per_step) for a in arms]),
    ]
    if baseline is None:
        return rows
    gains = [speedup_over(baseline, arm) for arm in arms]
    return [
        *rows,
        ("generation speedup", [_times(g.generation) for g in gains]),
        ("step speedup", [_times(g.step) for g in gains]),
        ("step speedup, equal tokens", [_times(g.step_per_token) for g in gains]),
        ("Amdahl bound", [_times(g.bound) for g in gains]),
        ("cost c(k) of a step", [_number(g.cost) for g in gains]),
    ]


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
