"""Copies of published weights on nodes that do not see the learner's memory."""

import secrets
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from specrl.errors import RunError
from specrl.protocols import Actor, Future
from specrl.weight_sync.staging_folder import hold, remove_orphans

PROBE = ".probe"
CHUNK_BYTES = 32 * 1024 * 1024
CHUNKS_AHEAD = 4  # per node: what Ray's object store must hold


class Mirror:
    """Lives on a node with engines: keeps files of the learner's node there, at the same path."""

    def open(self, folder: Path, word: str) -> bool:
        """Whether the node needs copies: False where it sees the folder's own files.

        Else the folder is made here and held by this process.
        """
        probe = folder / PROBE
        if probe.is_file() and probe.read_text() == word:
            return False
        remove_orphans(folder.parent)
        folder.mkdir(mode=0o700, parents=True)
        self._lock = hold(folder)
        return True

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """Puts `data` at `offset` of the file."""
        path.parent.mkdir(exist_ok=True)
        with path.open("wb" if offset == 0 else "r+b") as file:
            file.seek(offset)
            file.write(data)

    def remove(self, folder: Path) -> None:
        """Removes what is there."""
        shutil.rmtree(folder, ignore_errors=True)


class Mirrors:
    """The mirrors of one staging folder, driven from the learner's node."""

    def __init__(self, actors: Sequence[Actor], folder: Path) -> None:
        word = secrets.token_hex(8)
        (folder / PROBE).write_text(word)
        opened = [actor.submit("open", folder, word) for actor in actors]
        self._actors = [a for a, future in zip(actors, opened, strict=True) if future.result()]

    def copy(self, folder: Path) -> None:
        """Every file directly in `folder`, to every node that needs one."""
        if not self._actors:
            return
        waiting: deque[Future] = deque()
        for path in sorted(folder.iterdir()):
            for offset, data in _chunks(path):
                waiting.extend(actor.submit("write", path, offset, data) for actor in self._actors)
                while len(waiting) > CHUNKS_AHEAD * len(self._actors):
                    waiting.popleft().result()
        for future in waiting:
            future.result()

    def remove(self, folder: Path) -> None:
        """Never raises: a node that is gone took its files along."""
        for future in [actor.submit("remove", folder) for actor in self._actors]:
            with suppress(RunError):
                future.result()


def _chunks(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        offset = 0
        while data := file.read(CHUNK_BYTES):
            yield offset, data
            offset += len(data)
