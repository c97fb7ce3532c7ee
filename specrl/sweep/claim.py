"""Which launcher runs a point, when several want it."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from specrl.process import ProcessId
from specrl.sweep.point import PointTask
from specrl.sweep.status import (
    Status,
    changing,
    is_alive,
    known,
    left_behind,
    write_status,
)

Claim = Literal["ours", "theirs", "done"]
Alive = Callable[[Status], bool | None]


def claim(task: PointTask, launcher: ProcessId, since_s: float, alive: Alive) -> Claim:
    """Queues the point for `launcher` unless it is done, or another living one has it.

    Of several launchers that ask at once exactly one gets "ours". `alive` may know of jobs whose
    process cannot be seen. With rerun=true only what ended after `since_s` (Unix time) is done.
    """
    with changing(task.folder) as status:
        if status is not None and is_done(task, status, since_s):
            return "done"
        if status is not None and status.process != launcher and _held(task, status, alive):
            return "theirs"
        before = left_behind(task.folder, known(status, Status("queued")))
        write_status(task.folder, _queued(task, before, launcher))
    return "ours"


def is_done(task: PointTask, status: Status, since_s: float) -> bool:
    """Whether the run that the task asks for is there."""
    enough = status.state == "finished" and status.steps >= task.config.steps
    return enough and (not task.config.rerun or (status.ended_s or 0.0) >= since_s)


def _held(task: PointTask, status: Status, alive: Alive) -> bool:
    waits_or_runs = alive(status)  # also a job that Slurm took back after it had failed
    return is_alive(task.folder, status) if waits_or_runs is None else waits_or_runs


def _queued(task: PointTask, before: Status, launcher: ProcessId) -> Status:
    """`seconds` and `attempt` go on counting, unless the run starts again."""
    kept = Status("queued") if task.config.rerun else before
    return replace(
        kept,
        state="queued",
        reason="",
        process=launcher,
        job=None,
        log=None,
        overrides=task.overrides,
        queued_s=time.time(),
        started_s=None,
        ended_s=None,
    )
