"""Weights for a node that does not see the learner's memory."""

from pathlib import Path

import pytest

from specrl.fakes import FakeEngine, FakeLearner, InProcessActor
from specrl.weight_sync import mirror, shared_memory
from specrl.weight_sync.mirror import Mirror
from specrl.weight_sync.shared_memory import SharedMemorySync


class Elsewhere:
    """A node that has the learner's folder below a root of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mirror = Mirror()

    def open(self, folder: Path, word: str) -> bool:
        return self._mirror.open(self._here(folder), word)

    def write(self, path: Path, offset: int, data: bytes) -> None:
        self._mirror.write(self._here(path), offset, data)

    def remove(self, folder: Path) -> None:
        self._mirror.remove(self._here(folder))

    def _here(self, path: Path) -> Path:
        return self._root / path.relative_to("/")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "learner"
    base.mkdir()
    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", base)
    return base


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.rglob("*.safetensors")}


def test_another_node_gets_what_is_live_and_nothing_else(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "CHUNK_BYTES", 7)
    other = tmp_path / "other"
    actor = InProcessActor("weights-1", Elsewhere(other))
    sync = SharedMemorySync(FakeLearner(draft_weight=0.0), FakeEngine(), mirrors=[actor])
    for version in range(3):
        sync.publish(version)
        assert set(contents(other)) == {f"{part}-v{version}.safetensors" for part in PARTS}
        assert contents(other) == contents(memory)
    sync.close()
    assert contents(other) == {}


PARTS = ("draft", "policy")


def test_a_node_that_sees_the_learner_s_files_gets_no_copy(memory: Path) -> None:
    writes: list[Path] = []

    class Here(Mirror):
        def write(self, path: Path, offset: int, data: bytes) -> None:
            writes.append(path)
            super().write(path, offset, data)

    sync = SharedMemorySync(
        FakeLearner(), FakeEngine(), mirrors=[InProcessActor("weights-1", Here())]
    )
    sync.publish(0)
    assert len(contents(memory)) == 1
    assert writes == []
    sync.close()
