"""Every point of a sweep in one table: how it ended and what it measured; and where it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from specrl.errors import UserError
from specrl.sweep.comparison import arm_figures
from specrl.sweep.points import Point, counted
from specrl.sweep.slurm_queue import Queue, told_by_slurm
from specrl.sweep.status import Status, read_status, settled
from specrl.telemetry.jsonl import STEP_MARK, read_run

RUN_LOG = "run.log"
INDENT = "   "
HEADINGS = ("seconds", "steps", "step (s)", "gen. speedup", "alpha", "reward", "accuracy")
COLOURS = {
    "finished": "green",
    "failed": "red",
    "interrupted": "yellow",
    "damaged": "red",
    "running": "cyan",
    "queued": "dim",
}


@dataclass(frozen=True)
class Row:
    """A point as the table shows it; None where nothing was measured.

    `step_s` is the mean step after the first, `generation_speedup` per token over the arm without a
    draft that has the same settings, `acceptance_length` is alpha, `reward` and `accuracy` are the
    last ones.
    """

    point: Point
    status: Status
    steps: int
    step_s: float | None = None
    generation_speedup: float | None = None
    acceptance_length: float | None = None
    reward: float | None = None
    accuracy: float | None = None

    @property
    def stopped_short(self) -> bool:
        """Whether it ended without what it was to do."""
        return self.status.state in ("failed", "interrupted", "damaged")

    @property
    def log(self) -> Path:
        """What to read when it failed."""
        return Path(self.status.log) if self.status.log else self.point.folder / RUN_LOG

    def as_json(self) -> dict[str, Any]:
        """For `specrl-status --json`."""
        status = self.status
        return {
            "overrides": list(self.point.overrides),
            "folder": str(self.point.folder),
            "state": status.state,
            "reason": status.reason,
            "attempt": status.attempt,
            "seconds": round(status.seconds, 1),
            "job": status.job,
            "process": str(status.process) if status.process else None,
            "log": str(self.log),
            "steps": self.steps,
            "step_s": self.step_s,
            "generation_speedup": self.generation_speedup,
            "acceptance_length": self.acceptance_length,
            "reward": self.reward,
            "accuracy": self.accuracy,
        }


def rows_of(points: Sequence[Point]) -> list[Row]:
    """One row for each run folder, in order; a point that was never queued counts as queued."""
    distinct = list({point.folder: point for point in reversed(points)}.values())[::-1]
    figures = arm_figures(distinct)
    slurm = Queue(poll_s=float("inf"))
    return [_row(point, slurm, figures.get(point.folder, {})) for point in distinct]


def complaints_of(rows: Sequence[Row]) -> list[str]:
    """A line for each point that did not do what it was to do: why, and what to read."""
    return [
        f"{label}: {row.status.state}: {row.status.reason}; log {row.log}"
        for row, label in zip(rows, labels_of(rows), strict=True)
        if row.stopped_short
    ]


def labels_of(rows: Sequence[Row]) -> list[str]:
    """As `labels`."""
    return labels([row.point for row in rows])


def labels(points: Sequence[Point]) -> list[str]:
    """What tells each point from the others, with its number."""
    shared = set.intersection(*(set(point.overrides) for point in points)) if points else set()
    if len(points) == 1:
        shared = set()
    return [
        " ".join([f"{number}.", *(word for word in point.overrides if word not in shared)])
        for number, point in enumerate(points, 1)
    ]


def table_of(rows: Sequence[Row], reasons: bool = True) -> Text:
    """The table, for 80 columns: what tells the point from the others, its figures, its place.

    Without `reasons` points that stopped short have none: `complaints_of` tells them.
    """
    lines = [Text(_title(rows)), Text(_figures("state", *HEADINGS), style="bold")]
    for name, row in zip(labels_of(rows), rows, strict=True):
        status, state = row.status, len(row.status.state)
        figures = Text(_figures(status.state, *_cells(row)))
        figures.stylize(COLOURS[status.state], len(INDENT), len(INDENT) + state)
        lines += [Text(name), figures]
        reason = status.reason if reasons or not row.stopped_short else ""
        place = f"log {row.log}" if row.stopped_short else row.point.folder
        lines += [Text(f"{INDENT}{told}") for told in (reason, place) if told]
    return Text("\n").join(lines)


def _figures(state: str, *cells: str) -> str:
    columns = zip(cells, HEADINGS, strict=True)
    return f"{INDENT}{state:<11}" + "".join(f"{c:>{max(len(h), 5) + 2}}" for c, h in columns)


def _cells(row: Row) -> list[str]:
    return [
        f"{row.status.seconds:.1f}" if row.status.seconds else "-",
        str(row.steps),
        _number(row.step_s),
        "-" if row.generation_speedup is None else f"{row.generation_speedup:.2f}x",
        _number(row.acceptance_length),
        _number(row.reward, 3),
        _number(row.accuracy, 3),
    ]


def _title(rows: Sequence[Row]) -> str:
    states = [row.status.state for row in rows]
    counts = [f"{states.count(state)} {state}" for state in COLOURS if state in states]
    return f"{counted(len(rows))}: {', '.join(counts)}"


def _row(point: Point, slurm: Queue, figures: Mapping[str, float]) -> Row:
    status = settled(point.folder, read_status(point.folder) or Status("queued"))
    status = told_by_slurm(status, slurm)
    try:
        metrics = [record.metrics for record in read_run(point.folder).records]
    except (UserError, OSError):  # it has not begun, or nobody may read it
        metrics = []
    rewards = [step["reward/mean"] for step in metrics if "reward/mean" in step]
    return Row(
        point,
        status,
        steps=sum(STEP_MARK in step for step in metrics),
        step_s=figures.get("step_s"),
        generation_speedup=figures.get("speedup_generation"),
        acceptance_length=figures.get("acceptance_length"),
        reward=rewards[-1] if rewards else None,
        accuracy=figures.get("accuracy"),
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
