"""Points as processes of this machine, through submitit."""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from submitit import LocalExecutor
from submitit.local.local import LocalJob

from specrl.process import oom_kills
from specrl.sweep.executor import Job, JobEnd
from specrl.sweep.point import PointTask, run_point
from specrl.sweep.points import check_here
from specrl.sweep.status import Status

CONSOLE_FILE = "console.log"
JOB_FOLDER = "job"  # of a run folder: what submitit hands over
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


class LocalPoints:
    """`jobs` points at once. They stop, saved, when the launcher dies, however it dies."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    @property
    def at_once(self) -> int | None:
        return self._jobs

    def check(self, task: PointTask) -> None:
        check_here(task.config)

    def submit(self, tasks: Sequence[PointTask]) -> list[Job]:
        return [self._start(task) for task in tasks]

    def alive(self, status: Status) -> bool | None:
        del status
        return None

    def _start(self, task: PointTask) -> Job:
        shutil.rmtree(task.folder / JOB_FOLDER, ignore_errors=True)
        executor = _ChildExecutor(task.folder / JOB_FOLDER, task.folder / CONSOLE_FILE)
        executor.submit(_as_child, task, os.getpid())
        assert executor.child is not None
        return LocalPoint(executor.child, executor.log, oom_kills())


@dataclass(frozen=True)
class LocalPoint:
    """A child process that leads a session, so that the terminal's Ctrl-C is ours to pass on."""

    process: subprocess.Popen[bytes]
    log: Path
    oom_kills_before: int

    @property
    def id(self) -> str | None:
        return None

    def poll(self) -> JobEnd | None:
        code = self.process.poll()
        if code is None:
            return None
        if code != 0:
            self._end_group()
        return JobEnd(self._reason(code))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._end_group()
        self.process.wait()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _reason(self, code: int) -> str:
        if code == 0:
            return ""
        if code > 0:
            return f"exit code {code}: {last_line(self.log)}"
        name = signal.Signals(-code).name
        memory = oom_kills() > self.oom_kills_before and -code == signal.SIGKILL
        return f"killed by signal {-code} ({name})" + ("; out of memory" if memory else "")


class _ChildExecutor(LocalExecutor):
    """One job as a direct child: submitit's own controller drops exit codes and hides GPUs."""

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(folder)
        self.log = log
        self.child: subprocess.Popen[bytes] | None = None

    @classmethod
    def name(cls) -> str:
        return LocalExecutor.name()

    def _submit_command(self, command: str) -> LocalJob[Any]:
        job_id = uuid.uuid4().hex[:8]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SUBMITIT_")
        } | {
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_JOB_ID": job_id,
            "COLUMNS": str(shutil.get_terminal_size().columns),
        }
        with self.log.open("ab") as output:
            self.child = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return LocalJob(self.folder, job_id, process=self.child)


def _as_child(task: PointTask, launcher: int) -> NoReturn:
    """The job of a point: it ends as by Ctrl-C when the launcher is gone.

    It leaves with 1 where not even the end could be written down. It never returns: submitit would
    save a result that nobody reads, and has a traceback for a disk that is full.
    """
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGINT)
    status = run_point(task) if os.getppid() == launcher else None
    sys.exit(0 if status is None or status.over else 1)


def last_line(log: Path) -> str:
    """The last line of a log that says anything; "" without one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
