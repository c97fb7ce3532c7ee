"""One point of a sweep in a process of its own: claimed, run, and its end written down."""

import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from specrl.config.train import TrainConfig
from specrl.durable import DISK_FAULTS
from specrl.errors import RunError, UserError
from specrl.process import this_process
from specrl.run_folder import LOCK_FILE, LOG_FILE, exclusive
from specrl.sweep.status import (
    HEARTBEAT_S,
    STATUS_FILE,
    State,
    Status,
    beat,
    changing,
    known,
    left_behind,
    read_status,
    write_status,
)
from specrl.sweep.status import LOCK_FILE as STATUS_LOCK_FILE

Run = Callable[[TrainConfig, Path, Sequence[str]], None]
SLURM_JOB = "SLURM_JOB_ID"
BEFORE_THE_RUN = {STATUS_FILE, STATUS_LOCK_FILE, LOCK_FILE, LOG_FILE}


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
    nothing any more. A mistake told before the run wrote anything leaves no folder that was made
    for it.
    """
    made = [place for place in (folder, *folder.parents) if not os.path.exists(place)]
    with naming_disk_faults(folder), exclusive(folder), _removing_if_refused(made):
        with changing(folder) as found:
            before = left_behind(folder, known(found, Status("queued")))
            status = _started(before, config, overrides)
            write_status(folder, status)
        with _ending(folder, status), _heartbeat(folder), naming_disk_faults(folder):
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
def _removing_if_refused(made: Sequence[Path]) -> Iterator[None]:
    """`made` are the run folder and what holds it, the innermost first."""
    try:
        yield
    except UserError:
        if made and {path.name for path in made[0].iterdir()} <= BEFORE_THE_RUN:
            shutil.rmtree(made[0])
            _remove_empty(made[1:])
        raise


def _remove_empty(places: Sequence[Path]) -> None:
    with suppress(OSError):  # somebody else put something there
        for place in places:
            place.rmdir()


@contextmanager
def naming_disk_faults(folder: Path) -> Iterator[None]:
    """Raises `RunError`, which names file, fault and fix, for a disk that takes nothing."""
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
        write_status(folder, known(now, started).ended(state, reason))


def _started(before: Status, config: TrainConfig, overrides: Sequence[str]) -> Status:
    """A queued status keeps the job and the log that its launcher wrote into it."""
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
