"""Points that cost a fork instead of a new Python: hundreds of them in a test."""

import ctypes
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toy_runs import write_steps

from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.config.train import TrainConfig
from specrl.sweep.executor import Job, JobEnd
from specrl.sweep.launch import launch
from specrl.sweep.local import SET_PARENT_DEATH_SIGNAL
from specrl.sweep.point import PointTask, run_point
from specrl.sweep.status import Status


@dataclass
class ForkedPoint:
    """Implements `Job`: a copy of the launcher, which ends with it."""

    pid: int
    log: Path
    id: None = None
    _end: JobEnd | None = None

    def poll(self) -> JobEnd | None:
        if self._end is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self._end = JobEnd()
        return self._end

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@dataclass
class ForkedPoints:
    """Implements `Executor`."""

    at_once: int

    def check(self, task: PointTask) -> None: ...

    def alive(self, status: Status) -> bool | None: ...

    def submit(self, tasks: Sequence[PointTask]) -> list[Job]:
        return [self._start(task) for task in tasks]

    def _start(self, task: PointTask) -> ForkedPoint:
        launcher = os.getpid()
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() == launcher:
                run_point(task)
            os._exit(0)
        return ForkedPoint(pid, task.folder / "console.log")


def count_and_write(config: TrainConfig, folder: Path, overrides: Sequence[str]) -> None:
    """A run that says when it starts and when it has ended."""
    note(folder.parent / "started", config.seed)
    write_steps(folder, config, overrides)
    note(folder.parent / "ended", config.seed)


def note(path: Path, seed: int) -> None:
    with path.open("a") as file:
        file.write(f"{seed}\n")


def launch_many(output_dir: str, count: int, at_once: int) -> None:
    """A sweep over `count` seeds, composed once."""
    base = load(["drafter=none", "tracking=none", "model=tiny", f"output_dir={output_dir}"])
    tasks = []
    for seed in range(count):
        config = replace(base, seed=seed)
        words = (f"seed={seed}", f"output_dir={output_dir}")
        tasks.append(PointTask(config, run_folder(config), words, count_and_write))
    launch(tasks, ForkedPoints(at_once), [f"seed=range(0,{count})"])
