"""Weights through a memory-backed file that learner and engines on one machine share."""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import psutil

from specrl.protocols import Learner, RolloutEngine
from specrl.types import WeightSnapshot

SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "specrl-weights-"


class SharedMemorySync:
    """Implements `WeightSync`. The live version's file stays until the next one is live."""

    def __init__(self, learner: Learner, engine: RolloutEngine) -> None:
        self._learner = learner
        self._engine = engine
        base = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
        _remove_orphans(base)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        self._publish_count = itertools.count()
        self._live: WeightSnapshot | None = None

    def publish(self, version: int) -> None:
        staging = self._folder / str(next(self._publish_count))
        staging.mkdir()
        try:
            snapshot = self._learner.export_weights(staging, version)
            self._engine.load_weights(snapshot)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        if self._live is not None:
            shutil.rmtree(self._live.path.parent, ignore_errors=True)
        self._live = snapshot

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_orphans(base: Path) -> None:
    """A killed run cannot remove its weights; they would hold memory until the next boot."""
    for folder in base.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
