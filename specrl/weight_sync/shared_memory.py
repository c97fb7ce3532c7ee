"""Weights through a memory-backed file that learner and engines on one machine share."""

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specrl.errors import PublishError
from specrl.protocols import Actor, Learner, RolloutEngine
from specrl.types import WeightSnapshot
from specrl.weight_sync.mirror import Mirrors
from specrl.weight_sync.staging_folder import PREFIX, hold, remove_orphans

SHARED_MEMORY = Path("/dev/shm")
VERSIONS_AT_ONCE = 2  # the live one stays until the next is live


class SharedMemorySync:
    """Implements `WeightSync`. The live version's file stays until the next one is live.

    `weight_bytes` is the size of one version; a machine with too little shared memory for it gets
    an ordinary temporary folder. `mirrors` are `Mirror` actors, one on each other node that has
    engines: where the file is not to be seen, they get a copy of it.
    """

    def __init__(
        self,
        learner: Learner,
        engine: RolloutEngine,
        weight_bytes: int = 0,
        mirrors: Sequence[Actor] = (),
    ) -> None:
        self._learner = learner
        self._engine = engine
        base = _base(VERSIONS_AT_ONCE * weight_bytes)
        remove_orphans(base)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self._lock = hold(self._folder)
        self._mirrors = Mirrors(mirrors, self._folder)
        self._publish_count = itertools.count()
        self._live: WeightSnapshot | None = None

    def publish(self, version: int) -> None:
        staging = self._folder / str(next(self._publish_count))
        try:
            staging.mkdir()
            snapshot = self._learner.export_weights(staging, version)
            self._mirrors.copy(staging)
            self._engine.load_weights(snapshot)
        except OSError as error:
            self._remove(staging)
            raise PublishError(f"{staging}: {error.strerror or error}; make room there") from error
        except BaseException:
            self._remove(staging)
            raise
        if self._live is not None:
            self._remove(self._live.path.parent)
        self._live = snapshot

    def close(self) -> None:
        self._remove(self._folder)
        self._lock.close()

    def _remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._mirrors.remove(folder)


def _base(needed_bytes: int) -> Path:
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > needed_bytes:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())
