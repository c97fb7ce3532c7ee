"""What a launcher does with the points of a sweep: record, run, tabulate."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console

from specrl.errors import RunError
from specrl.sweep.comparison import print_comparison
from specrl.sweep.executor import Executor
from specrl.sweep.lifecycle import Sweep
from specrl.sweep.point import PointTask
from specrl.sweep.points import Point, counted, distinct, point_of
from specrl.sweep.possible import check_points
from specrl.sweep.record import opened, save_record
from specrl.sweep.table import Row, complaints_of, rows_of, table_of
from specrl.sweep.tracking import below, end_parent, open_parent
from specrl.telemetry.console import PipeSafeConsole

AGAIN = "the same command goes on"
AGAIN_WITHOUT_RERUN = "the same command without rerun=true goes on"
Say = Callable[[str], None]


def launch(tasks: Sequence[PointTask], executor: Executor, overrides: Sequence[str]) -> None:
    """Runs the points and prints what became of them.

    Raises `UserError` for a point that cannot run there, or at all, before anything starts,
    `RunError` when a point did not finish, KeyboardInterrupt when a signal ended the sweep.
    """
    tasks = distinct(tasks)
    for task in tasks:
        executor.check(task)
    check_points(tasks)
    points = [point_of(task) for task in tasks]
    say = saying(PipeSafeConsole())
    record = opened(points, overrides)
    place = save_record(record)
    command = shlex.join(["specrl-status", str(place)])
    say(f"sweep of {counted(len(points))}; {command} tells where it stands")
    parent = open_parent(tasks, record, say)
    if parent is not None:
        save_record(replace(record, mlflow_parent=parent.id))
    interrupted = True
    try:
        interrupted = bool(Sweep(below(parent, tasks), executor, say).run())
    finally:
        rows = _tell(points)
        end_parent(parent, rows, interrupted, say)
    left = [row for row in rows if row.status.state != "finished"]
    again = AGAIN_WITHOUT_RERUN if any(task.config.rerun for task in tasks) else AGAIN
    if interrupted:
        say(f"{len(left)} of {len(rows)} points are left; {again}")
        raise KeyboardInterrupt
    if left:
        raise RunError(f"{len(left)} of {len(rows)} points did not finish; {again}")


def _tell(points: Sequence[Point]) -> list[Row]:
    """The tables on stdout, what went wrong on stderr."""
    rows = rows_of(points)
    PipeSafeConsole().print(table_of(rows, reasons=False), soft_wrap=True)
    print_comparison(points)
    for line in complaints_of(rows):
        sys.stderr.write(f"specrl: {line}\n")
    return rows


def saying(console: Console) -> Say:
    """Prints a line as it is."""

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    return say
