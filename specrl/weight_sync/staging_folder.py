"""Folders of published weights that a killed run cannot leave behind for good."""

import fcntl
import shutil
from pathlib import Path
from typing import TextIO

PREFIX = "specrl-weights-"
LOCK = ".lock"


def hold(folder: Path) -> TextIO:
    """The folder is in use until the file is closed, or its process gone."""
    lock = (folder / LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def remove_orphans(base: Path) -> None:
    """A killed run cannot remove its weights; they would hold memory until the next boot.

    A folder whose lock can be taken has no owner any more, in this container or another.
    """
    for path in base.glob(f"{PREFIX}*/{LOCK}"):
        with path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(path.parent, ignore_errors=True)
