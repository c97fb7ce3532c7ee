"""status.json of a run folder: where a point of a sweep stands, readable after any crash."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from specrl.durable import write_atomically
from specrl.process import ProcessId

STATUS_FILE = "status.json"
LOCK_FILE = ".status.lock"
HEARTBEAT_S = 10.0
DEAD_AFTER_S = 120.0
"""Without a heartbeat, where the process itself cannot be seen from here.

One that is further in the future counts for nothing: whose clock is that far ahead is not known.
"""

State = Literal["queued", "running", "finished", "failed", "interrupted"]
OVER = ("finished", "failed", "interrupted")
OPTIONAL = ("job", "log", "queued_s", "started_s", "ended_s")
NUMBERS = ("attempt", "seconds", "steps", "queued_s", "started_s", "ended_s")
TEXTS = ("state", "reason", "job", "log")


@dataclass(frozen=True)
class Status:
    """Where a point stands; times are Unix seconds.

    `reason` says why it failed or was interrupted. `process` answers for the state: the launcher
    that queued the point, the process that runs it. `job` is the id that the scheduler gave, None
    without one. `seconds` is the running time of every attempt that ended, `attempt` counts starts.
    `steps` are those that the last start asked for: a finished run may be asked for more.
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

    def ended(self, state: State, reason: str = "", now_s: float | None = None) -> Self:
        """This status after the attempt in hand ended."""
        now_s = time.time() if now_s is None else now_s
        ran_s = now_s - self.started_s if self.started_s and self.state == "running" else 0.0
        return replace(
            self, state=state, reason=reason, seconds=self.seconds + ran_s, ended_s=now_s
        )


def read_status(folder: Path) -> Status | None:
    """The status as it was written; None in a folder without one, or with a damaged one."""
    try:
        return decode_status(json.loads((folder / STATUS_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def write_status(folder: Path, status: Status) -> None:
    """Replaces the status in one rename; the folder must exist."""
    write_atomically(folder / STATUS_FILE, json.dumps(asdict(status), indent=1) + "\n")


@contextmanager
def changing(folder: Path) -> Iterator[Status | None]:
    """The status, which nobody else changes meanwhile; creates the folder. Hold it for moments."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield read_status(folder)


def beat(folder: Path) -> None:
    """The process that answers for the status lives."""
    try:
        os.utime(folder / STATUS_FILE)
    except OSError:  # the folder was moved away: the run itself will say so
        return


def is_alive(folder: Path, status: Status, now_s: float | None = None) -> bool:
    """Whether the process that answers for a queued or running point is still there.

    By its number and start where it can be seen from here, else by the age of its last heartbeat.
    """
    if status.over or status.process is None:
        return False
    seen = status.process.alive()
    if seen is not None:
        return seen
    try:
        age_s = (time.time() if now_s is None else now_s) - (folder / STATUS_FILE).stat().st_mtime
    except OSError:
        return False
    return abs(age_s) < DEAD_AFTER_S


def settled(folder: Path, status: Status) -> Status:
    """What a reader should believe: a running point whose process is gone has failed."""
    if status.state != "running" or is_alive(folder, status):
        return status
    return replace(status, state="failed", reason=f"{status.process} is gone without a word")


def decode_status(values: Mapping[str, Any]) -> Status:
    """Raises `TypeError` or `ValueError` for values that are no status."""
    values = dict(values)
    process = values.get("process")
    found = Status(**values | {"overrides": tuple(map(str, values.get("overrides", ())))})
    if found.state not in (*OVER, "queued", "running"):
        raise ValueError(f"no such state: {found.state}")
    found = replace(found, process=ProcessId(**process) if process else None)
    _check_types(found, NUMBERS, int, float)
    _check_types(found, TEXTS, str)
    if found.process is not None:
        _check_types(found.process, ("pid", "namespace"), int)
        _check_types(found.process, ("started_s",), int, float)
        _check_types(found.process, ("host",), str)
    return found


def _check_types(record: object, names: Sequence[str], *types: type) -> None:
    for name in names:
        value = getattr(record, name)
        if value is None and name in OPTIONAL:
            continue
        if not isinstance(value, types):
            raise TypeError(f"{name}={value!r} is of another type")
