"""Weights through a memory-backed file that learner and engines on one machine share."""

import fcntl
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TextIO

from specrl.errors import PublishError
from specrl.protocols import Learner, RolloutEngine
from specrl.types import WeightSnapshot

SHARED_MEMORY = Path("/dev/shm")
VERSIONS_AT_ONCE = 2  # the live one stays until the next is live
_PREFIX = "specrl-weights-"
_LOCK = ".lock"


class SharedMemorySync:
    """Implements `WeightSync`. The live version's file stays until the next one is live.

    `weight_bytes` is the size of one version; a machine with too little shared memory for it gets
    an ordinary temporary folder.
    """

    def __init__(self, learner: Learner, engine: RolloutEngine, weight_bytes: int = 0) -> None:
        self._learner = learner
        self._engine = engine
        base = _base(VERSIONS_AT_ONCE * weight_bytes)
        _remove_orphans(base)
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._lock = _hold(self._folder)
        self._publish_count = itertools.count()
        self._live: WeightSnapshot | None = None

    def publish(self, version: int) -> None:
        staging = self._folder / str(next(self._publish_count))
        try:
            staging.mkdir()
            snapshot = self._learner.export_weights(staging, version)
            self._engine.load_weights(snapshot)
        except OSError as error:
            shutil.rmtree(staging, ignore_errors=True)
            raise PublishError(f"{staging}: {error.strerror or error}; make room there") from error
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        if self._live is not None:
            shutil.rmtree(self._live.path.parent, ignore_errors=True)
        self._live = snapshot

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def _base(needed_bytes: int) -> Path:
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > needed_bytes:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _hold(folder: Path) -> TextIO:
    lock = (folder / _LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _remove_orphans(base: Path) -> None:
    """A killed run cannot remove its weights; they would hold memory until the next boot.

    A folder whose lock can be taken has no owner any more, in this container or another.
    """
    for path in base.glob(f"{_PREFIX}*/{_LOCK}"):
        with path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(path.parent, ignore_errors=True)
