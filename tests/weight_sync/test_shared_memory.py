"""Publishing through shared memory, on fakes: which file lives how long."""

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


def make_sync(
    faults: Faults, draft_weight: float | None = None
) -> tuple[SharedMemorySync, FakeEngine]:
    engine = FakeEngine(faults=faults)
    learner = FakeLearner(faults=faults, draft_weight=draft_weight)
    return SharedMemorySync(learner, engine), engine


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


def test_policy_and_draft_live_and_go_together(base: Path) -> None:
    faults = Faults({("load_weights", 2): PublishError("corrupt")})
    sync, engine = make_sync(faults, draft_weight=0.0)
    for version in range(2):
        sync.publish(version)
        assert files(base) == [f"{part}-v{version}.safetensors" for part in ("draft", "policy")]
    assert engine.live is not None
    assert engine.live.draft is not None
    with pytest.raises(PublishError):
        sync.publish(2)
    assert files(base) == ["draft-v1.safetensors", "policy-v1.safetensors"]


def test_closing_leaves_nothing_behind(base: Path) -> None:
    sync, _ = make_sync(Faults())
    sync.publish(0)
    sync.close()
    assert list(base.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_one(base: Path) -> None:
    alive, _ = make_sync(Faults())
    alive.publish(0)
    dead = base / "specrl-weights-dead"
    dead.mkdir()
    (dead / ".lock").write_text("")
    (dead / "policy-v7.safetensors").write_text("")
    make_sync(Faults())[0].close()
    assert files(base) == ["policy-v0.safetensors"]
    assert not dead.exists()
    alive.publish(1)


def test_too_little_shared_memory_means_an_ordinary_folder(
    base: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    sync = SharedMemorySync(FakeLearner(), FakeEngine(), weight_bytes=2**60)
    sync.publish(0)
    assert files(base) == []
    assert files(elsewhere) == ["policy-v0.safetensors"]
    sync.close()


@pytest.mark.usefixtures("base")
def test_a_full_disk_is_a_failed_publish_that_names_the_place() -> None:
    full = OSError(28, "No space left on device")
    sync, _ = make_sync(Faults({("export_weights", 0): full}))
    with pytest.raises(PublishError, match="No space left on device"):
        sync.publish(0)
