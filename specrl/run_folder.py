"""One process at a time in a run folder, with its log in it."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from specrl.errors import UserError
from specrl.process import ProcessId, process_id

LOCK_FILE = ".lock"
LOG_FILE = "run.log"


@contextmanager
def exclusive(folder: Path, must_exist: bool = False) -> Iterator[None]:
    """Creates the folder and holds it; the hold ends with the process, however it ends.

    Raises `UserError` naming the process that holds it already, and for a folder that is missing
    with `must_exist`.
    """
    if must_exist and not folder.is_dir():
        raise UserError(f"{folder} is not a run folder: it does not exist; name outputs/<run>")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            number = lock.read().strip() or "unknown"
            raise UserError(
                f"{folder} is in use by process {number}; wait for it or use another output_dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def cannot_write(folder: Path, error: OSError) -> UserError:
    """Why a run cannot have the folder, and what to do."""
    return UserError(
        f"output_dir: cannot write to {folder} ({error.strerror}); name a folder that you can "
        "write to: output_dir=..."
    )


def holder(folder: Path) -> ProcessId | None:
    """The process that holds the folder; None where none does, or where none can be told."""
    try:
        with (folder / LOCK_FILE).open(encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                number = lock.read().strip()
            else:
                return None
    except (OSError, ValueError):
        return None
    try:
        return process_id(int(number))
    except (ValueError, OverflowError, psutil.Error):
        return ProcessId("another machine", int(number) if number.isdecimal() else 0, 0.0)


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Sends specrl's log records, spans included, to the file."""
    root = logging.getLogger("specrl")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = root.level, root.propagate
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        root.level, root.propagate = before
