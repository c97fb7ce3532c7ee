"""Publishing through shared memory, on fakes: which file lives how long."""

import os
from pathlib import Path

import pytest

from specrl.errors import ActorDied, PublishError
from specrl.fakes import FakeEngine, FakeLearner, Faults
from specrl.weight_sync import shared_memory
from specrl.weight_sync.shared_memory import SharedMemorySync


def files(base: Path) -> list[str]:
    return sorted(p.name for p in base.rglob("*.safetensors"))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", tmp_path)
    return tmp_path


def make_sync(faults: Faults) -> tuple[SharedMemorySync, FakeEngine]:
    engine = FakeEngine(faults=faults)
    return SharedMemorySync(FakeLearner(faults=faults), engine), engine


def test_only_the_live_version_s_file_stays(base: Path) -> None:
    sync, engine = make_sync(Faults())
    for version in range(3):
        sync.publish(version)
        assert engine.version == version
        assert files(base) == [f"policy-v{version}.safetensors"]


def test_the_same_version_can_be_published_again(base: Path) -> None:
    sync, _ = make_sync(Faults())
    for _ in range(3):
        sync.publish(5)
        assert files(base) == ["policy-v5.safetensors"]


@pytest.mark.parametrize(
    ("event", "failure"),
    [("load_weights", PublishError("corrupt")), ("export_weights", ActorDied("learner died"))],
)
def test_a_failed_publish_keeps_the_live_file_and_drops_the_new_one(
    base: Path, event: str, failure: Exception
) -> None:
    sync, engine = make_sync(Faults({(event, 1): failure}))
    sync.publish(0)
    with pytest.raises(type(failure)):
        sync.publish(1)
    assert engine.version == 0
    assert files(base) == ["policy-v0.safetensors"]
    sync.publish(2)
    assert files(base) == ["policy-v2.safetensors"]


def test_closing_leaves_nothing_behind(base: Path) -> None:
    sync, _ = make_sync(Faults())
    sync.publish(0)
    sync.close()
    assert list(base.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_one(base: Path) -> None:
    dead, alive = base / "specrl-weights-999999999-a", base / f"specrl-weights-{os.getpid()}-b"
    for folder in (dead, alive):
        folder.mkdir()
    make_sync(Faults())[0].close()
    assert [p.name for p in base.iterdir()] == [alive.name]
