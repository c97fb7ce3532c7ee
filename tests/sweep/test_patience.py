"""Processes that will not end are killed: after their run, and after a second Ctrl-C."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.interruption import SAME_KEY_PRESS_S
from specrl.sweep.executor import Job, JobEnd
from specrl.sweep.lifecycle import Patience, Sweep
from specrl.sweep.local import LocalPoints
from specrl.sweep.point import PointTask
from specrl.sweep.status import Status, read_status

QUICK = Patience(linger_s=0.5, kill_after_s=0.5)


def task_in(folder: Path) -> PointTask:
    config = load(["drafter=none", "tracking=none", f"output_dir={folder}"])
    return PointTask(config, run_folder(config), ())


@dataclass
class Deaf:
    """A `Job` that never ends by itself, and the `Executor` of it; Ctrl-C comes twice."""

    log: Path
    id: None = None
    at_once: int = 1
    killed: bool = False
    presses: list[float] = field(default_factory=list)

    def submit(self, tasks: Sequence[PointTask]) -> list[Job]:
        assert len(tasks) == 1
        return [self]

    def poll(self) -> JobEnd | None:
        last = self.presses[-1] if self.presses else 0.0
        if len(self.presses) < 2 and time.monotonic() - last > 2 * SAME_KEY_PRESS_S:
            self.presses.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        return JobEnd() if self.killed else None

    def stop(self) -> None: ...

    def kill(self) -> None:
        self.killed = True

    def check(self, task: PointTask) -> None: ...

    def alive(self, status: Status) -> bool | None: ...


@pytest.mark.slow
def test_a_point_that_hears_no_signal_is_killed_after_the_second(tmp_path: Path) -> None:
    deaf = Deaf(tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        Sweep([task_in(tmp_path)], deaf, lambda _: None, QUICK).run()
    assert deaf.killed
    assert time.monotonic() - deaf.presses[1] >= QUICK.kill_after_s


@pytest.mark.slow
def test_a_point_whose_process_outlives_its_run_is_killed_and_the_next_starts(
    tmp_path: Path,
) -> None:
    def leaves_a_thread(*_: object) -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()

    first = replace(task_in(tmp_path / "a"), run=leaves_a_thread)
    second = replace(task_in(tmp_path / "b"), run=leaves_a_thread)
    started_s = time.monotonic()
    assert Sweep([first, second], LocalPoints(1), lambda _: None, QUICK).run() == ""
    assert time.monotonic() - started_s < 300
    for task in (first, second):
        status = read_status(task.folder)
        assert status is not None
        assert status.state == "finished"
        assert status.process is not None
        assert status.process.alive() is False
