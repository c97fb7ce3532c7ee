"""status.json of a run folder: where a point of a sweep stands, readable after any crash."""

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from specrl.durable import is_full, write_atomically
from specrl.errors import UserError
from specrl.process import ProcessId
from specrl.run_folder import cannot_write, holder

STATUS_FILE = "status.json"
LOCK_FILE = ".status.lock"
HEARTBEAT_S = 10.0
DEAD_AFTER_S = 120.0
"""Without a heartbeat, where the process itself cannot be seen from here.

One that is further in the future counts for nothing: whose clock is that far ahead is not known.
"""

State = Literal["queued", "running", "finished", "failed", "interrupted", "damaged"]
"""Nobody writes "damaged": it is what a status that cannot be read is read as."""

OVER = ("finished", "failed", "interrupted")
LARGEST = 1e12
"""No count of a run, and no time of it in seconds, reaches it."""


@dataclass(frozen=True)
class Status:
    """Where a point stands; times are Unix seconds.

    `reason` says why it failed or was interrupted. `process` answers for the state: the launcher
    that queued the point, the process that runs it. `job` is the id that the scheduler gave, None
    without one. `seconds` is the running time of every attempt that ended, `attempt` counts starts.
    `steps` are those that the last start asked for: a finished run may be asked for more. A damaged
    one has only `reason` (file, fault and fix) and the `process` that holds the run folder.
    """

    state: State
    reason: str = ""
    attempt: int = 0
    seconds: float = 0.0
    steps: int = 0
    process: ProcessId | None = None
    job: str | None = None
    log: str | None = None
    overrides: tuple[str, ...] = ()
    queued_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.state in OVER

    @property
    def damaged(self) -> bool:
        """Whether the file could not be read."""
        return self.state == "damaged"

    def ended(self, state: State, reason: str = "", now_s: float | None = None) -> Self:
        """This status after the attempt in hand ended."""
        now_s = time.time() if now_s is None else now_s
        return replace(
            self, state=state, reason=reason, seconds=self.seconds_until(now_s), ended_s=now_s
        )

    def seconds_until(self, now_s: float) -> float:
        """`seconds`, and those of the attempt that runs."""
        if self.state != "running" or self.started_s is None:
            return self.seconds
        return self.seconds + max(0.0, now_s - self.started_s)


def read_status(folder: Path) -> Status | None:
    """The status as it was written, or a damaged one; None in a folder without one."""
    path = folder / STATUS_FILE
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is no file")
        return decode_status(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return _damaged(path, "it is missing") if holder(folder) else None
    except OSError as error:
        return _damaged(path, str(error.strerror))
    except RecursionError:
        return _damaged(path, "it is nested too deeply")
    except ValueError as error:
        return _damaged(path, str(error))


def _damaged(path: Path, fault: str) -> Status:
    process = holder(path.parent)
    fix = "the same command goes on from the last checkpoint and writes it anew"
    if path.is_dir():
        fix = f"remove it, then {fix}"
    elif process is not None:
        fix = f"{process} has the run and writes it anew when that ends"
    return Status("damaged", f"{path} is damaged ({fault}); {fix}", process=process)


def write_status(folder: Path, status: Status) -> None:
    """Replaces the status in one rename; the folder must exist."""
    assert not status.damaged, status
    write_atomically(folder / STATUS_FILE, json.dumps(asdict(status), indent=1) + "\n")


@contextmanager
def changing(folder: Path) -> Iterator[Status | None]:
    """The status, which nobody else changes meanwhile; creates the folder. Hold it for moments.

    Raises `UserError` where a status cannot be written.
    """
    if (folder / STATUS_FILE).is_dir():
        raise UserError(f"{folder / STATUS_FILE} is a folder in the place of a file; remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_FILE).open("w")
    except (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise cannot_write(folder, error) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield read_status(folder)


def known(status: Status | None, otherwise: Status) -> Status:
    """`otherwise` where the status is missing or damaged."""
    return otherwise if status is None or status.damaged else status


def beat(folder: Path) -> None:
    """The process that answers for the status lives."""
    try:
        os.utime(folder / STATUS_FILE)
    except OSError:  # the folder was moved away: the run itself will say so
        return


def is_alive(folder: Path, status: Status, now_s: float | None = None) -> bool:
    """Whether the process that answers for a queued or running point is still there.

    By its number and start where it can be seen from here, else by the age of its last heartbeat;
    of a damaged status it is the one that held the run folder when the status was read.
    """
    if status.over or status.process is None:
        return False
    seen = True if status.damaged else status.process.alive()
    if seen is not None:
        return seen
    now_s = time.time() if now_s is None else now_s
    return abs(now_s - _beaten_s(folder, 0.0)) < DEAD_AFTER_S


def settled(folder: Path, status: Status) -> Status:
    """What a reader should believe: `seconds` up to now, and who runs and is gone has failed."""
    if status.state != "running":
        return status
    if is_alive(folder, status):
        return replace(status, seconds=status.seconds_until(time.time()))
    return left_behind(folder, status)


def left_behind(folder: Path, status: Status) -> Status:
    """This status where its process is gone: one that ran did so until its last heartbeat."""
    if status.state != "running":
        return status
    why = "is gone without a word"
    if is_full(folder):
        why = f"is gone and the disk of {folder} is full; make room there"
    reason = f"{status.process or 'its process'} {why}; the same command goes on"
    now_s = time.time()
    return status.ended("failed", reason, min(now_s, _beaten_s(folder, now_s)))


def _beaten_s(folder: Path, otherwise_s: float) -> float:
    try:
        return (folder / STATUS_FILE).stat().st_mtime
    except OSError:
        return otherwise_s


def decode_status(values: Any) -> Status:
    """Raises `ValueError`, which says what is wrong, for values that are no status."""
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    written = [state for state in get_args(State) if state != "damaged"]
    if values.get("state") not in written:
        raise ValueError(f"state={values.get('state')!r} is none of {', '.join(written)}")
    _check(values, _STATUS, asdict(Status("queued")))
    process = values.get("process")
    if process is not None:
        _check(process, _PROCESS, {"namespace": 0})
        process = ProcessId(**process)
    overrides = tuple(values.get("overrides", ()))
    return Status(**{**values, "process": process, "overrides": overrides})


def _check(
    values: Mapping[str, Any], kinds: Mapping[str, Callable[[Any], bool]], plain: Mapping[str, Any]
) -> None:
    """`plain` are the values that may be left out, and stand for themselves."""
    for name in values:
        if name not in kinds:
            raise ValueError(f"it has {name!r}, which no status has")
    for name, fits in kinds.items():
        if name not in values and name not in plain:
            raise ValueError(f"it has no {name!r}")
        value = values.get(name, plain.get(name))
        if not (fits(value) or (name in plain and value is None and plain[name] is None)):
            raise ValueError(f"{name}={value!r} is out of bounds or of another type")


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_text, value))


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LARGEST


_PROCESS = {"host": _text, "pid": _count, "started_s": _amount, "namespace": _count}
_STATUS = {
    **dict.fromkeys(("state", "reason", "job", "log"), _text),
    **dict.fromkeys(("attempt", "steps"), _count),
    **dict.fromkeys(("seconds", "queued_s", "started_s", "ended_s"), _amount),
    "process": lambda value: isinstance(value, dict),
    "overrides": _texts,
}
