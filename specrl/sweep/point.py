"""One point of a sweep in a process of its own: claimed, run, and its end written down."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from specrl.config.train import TrainConfig
from specrl.durable import DISK_FAULTS
from specrl.errors import RunError, UserError
from specrl.process import this_process
from specrl.run_folder import exclusive
from specrl.sweep.status import (
    HEARTBEAT_S,
    State,
    Status,
    beat,
    changing,
    read_status,
    write_status,
)

Run = Callable[[TrainConfig, Path, Sequence[str]], None]
SLURM_JOB = "SLURM_JOB_ID"


@dataclass(frozen=True)
class PointTask:
    """What a job is given: a checked config, the folder of its run, and what was typed for it.

    `run` is `specrl.build.run` except in tests.
    """

    config: TrainConfig
    folder: Path
    overrides: tuple[str, ...]
    run: Run | None = None


def run_point(task: PointTask) -> Status | None:
    """Runs the point; how it ended is in its status file and given back, never raised.

    None when another process holds the run folder: that one answers for the status.
    """
    held = False
    try:
        with recorded(task.config, task.folder, task.overrides):
            held = True
            (task.run or train)(task.config, task.folder, task.overrides)
    except (UserError, RunError) as error:
        sys.stderr.write(f"specrl: {' '.join(str(error).split())}\n")
    except KeyboardInterrupt:
        sys.stderr.write("specrl: interrupted\n")
    except (Exception, SystemExit):
        traceback.print_exc()
    return read_status(task.folder) if held else None


def train(config: TrainConfig, folder: Path, overrides: Sequence[str]) -> None:
    """`specrl.build.run`, loaded when it is called: torch, vLLM and Ray come with it."""
    from specrl.build import run

    run(config, folder, overrides)


@contextmanager
def recorded(config: TrainConfig, folder: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Holds the run folder and keeps its status; errors pass through.

    Raises `UserError` when another process holds the folder, `RunError` for a disk that takes
    nothing any more.
    """
    with _naming_disk_faults(folder), exclusive(folder):
        with changing(folder) as before:
            status = _started(before, config, overrides)
            write_status(folder, status)
        with _ending(folder, status), _heartbeat(folder), _naming_disk_faults(folder):
            yield


@contextmanager
def _ending(folder: Path, started: Status) -> Iterator[None]:
    """Writes down how it ended."""
    try:
        yield
    except BaseException as error:
        _write_end(folder, started, *_end(error))
        raise
    _write_end(folder, started, "finished", "")


@contextmanager
def _naming_disk_faults(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FAULTS:
            raise
        raise RunError(
            f"nothing can be written to {error.filename or folder}: {error.strerror}; "
            f"{DISK_FAULTS[error.errno]}, then the same command goes on"
        ) from error


def _write_end(folder: Path, started: Status, state: State, reason: str) -> None:
    with changing(folder) as now:  # its launcher may have written the job and the log meanwhile
        write_status(folder, (now or started).ended(state, reason))


def _started(before: Status | None, config: TrainConfig, overrides: Sequence[str]) -> Status:
    """A queued status keeps the job and the log that its launcher wrote into it."""
    before = before or Status("queued")
    queued = before.state == "queued"
    return replace(
        before,
        state="running",
        reason="",
        attempt=before.attempt + 1,
        steps=config.steps,
        process=this_process(),
        job=(before.job if queued else None) or os.environ.get(SLURM_JOB),
        log=before.log if queued else None,
        overrides=tuple(overrides),
        started_s=time.time(),
        ended_s=None,
    )


def _end(error: BaseException) -> tuple[State, str]:
    """State and reason of a run that raised."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "stopped by a signal; the same command goes on"
    if isinstance(error, SystemExit):
        return "failed", f"the run left with exit code {error.code}"
    text = " ".join(str(error).split())
    if isinstance(error, UserError | RunError):
        return "failed", text
    return "failed", f"{type(error).__name__}: {text}"


@contextmanager
def _heartbeat(folder: Path) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(HEARTBEAT_S):
            beat(folder)

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
