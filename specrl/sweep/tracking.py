"""A sweep in MLflow: one run that the runs of its points are shown below."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from specrl.config.overrides import key_of
from specrl.config.tracking import MlflowConfig
from specrl.sweep.comparison import arm_figures
from specrl.sweep.point import PointTask
from specrl.sweep.record import SweepRecord
from specrl.sweep.table import Row
from specrl.telemetry.mlflow_sweep import ParentRun, SweepPoint, end_sweep, open_sweep

Say = Callable[[str], None]


def open_parent(tasks: Sequence[PointTask], record: SweepRecord, say: Say) -> ParentRun | None:
    """The sweep's run, an earlier one on a rerun.

    None where the points do not all go to one place in MLflow, and, said once, where it does not
    answer.
    """
    places = {_place(task): task.config.tracking for task in tasks}
    tracking = next(iter(places.values()))
    if len(places) > 1 or not isinstance(tracking, MlflowConfig):
        return None
    name = sweep_name(record.overrides)
    return open_sweep(tracking, record.key, name, record.overrides, warn=say)


def below(parent: ParentRun | None, tasks: Sequence[PointTask]) -> list[PointTask]:
    """The points, told which run theirs are shown below."""
    return list(tasks) if parent is None else [_below(parent.id, task) for task in tasks]


def end_parent(parent: ParentRun | None, rows: Sequence[Row], interrupted: bool, say: Say) -> None:
    """Ends the sweep's run, with what each point is compared by on the point's own run."""
    if parent is None:
        return
    compared = arm_figures([row.point for row in rows])
    points = [
        SweepPoint(row.point.folder, row.status.state, compared.get(row.point.folder, {}))
        for row in rows
    ]
    end_sweep(parent, points, _status(rows, interrupted), warn=say)


def sweep_name(overrides: Sequence[str]) -> str:
    """`table4` for sweep=table4, else what is swept over: `drafter=none,eagle3 drafter.k=3,5`."""
    named = [word.partition("=")[2] for word in overrides if key_of(word) == "sweep"]
    swept = " ".join(word for word in overrides if "," in word)
    parts = [*named, *([swept] if swept else [])] or [" ".join(overrides) or "sweep"]
    return ", ".join(parts)[:250]


def _place(task: PointTask) -> tuple[str, str] | None:
    tracking = task.config.tracking
    return (tracking.uri, tracking.experiment) if isinstance(tracking, MlflowConfig) else None


def _below(parent_id: str, task: PointTask) -> PointTask:
    tracking = task.config.tracking
    assert isinstance(tracking, MlflowConfig)
    told = replace(tracking, parent_run_id=parent_id)
    return replace(task, config=replace(task.config, tracking=told))


def _status(rows: Sequence[Row], interrupted: bool) -> str:
    if interrupted:
        return "interrupted"
    missing = sum(row.status.state != "finished" for row in rows)
    return f"failed: {missing} of {len(rows)} points did not finish" if missing else "finished"
