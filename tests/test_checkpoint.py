"""Checkpoints: atomic, verified, pruned."""

from pathlib import Path

import pytest

from specrl.checkpoint import CheckpointStore, RunState
from specrl.errors import RunError


def write(folder: Path) -> None:
    (folder / "rank-0").mkdir()
    (folder / "rank-0" / "weights.bin").write_bytes(bytes(range(256)) * 40)


def store_with(folder: Path, steps: list[int], keep: int = 3) -> tuple[CheckpointStore, list[str]]:
    warnings: list[str] = []
    store = CheckpointStore(folder, keep, warnings.append)
    for step in steps:
        store.save(RunState(step, step * 10, "run"), write)
    return store, warnings


def test_a_run_without_checkpoints_has_no_newest(tmp_path: Path) -> None:
    assert store_with(tmp_path / "none", [])[0].newest() is None


def test_the_newest_comes_back_with_its_state(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [1, 2])
    found = store.newest()
    assert found is not None
    assert found[0] == RunState(2, 20, "run")
    assert (found[1] / "rank-0" / "weights.bin").stat().st_size == 10240


def test_only_the_newest_n_are_kept(tmp_path: Path) -> None:
    store_with(tmp_path, [1, 2, 3, 10], keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000003", "step-000010"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest", "list", "empty"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, damage: str
) -> None:
    store, warnings = store_with(tmp_path, [1, 2])
    victim = tmp_path / "step-000002" / "rank-0" / "weights.bin"
    if damage == "truncate":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif damage == "flip":
        data = bytearray(victim.read_bytes())
        data[5000] ^= 1
        victim.write_bytes(bytes(data))
    elif damage == "remove":
        victim.unlink()
    else:
        text = {"manifest": "{", "list": "[]", "empty": "{}"}[damage]
        (tmp_path / "step-000002" / "manifest.json").write_text(text)
    found = store.newest()
    assert found is not None
    assert found[0].step == 1
    assert len(warnings) == 1
    assert "step-000002" in warnings[0]


def test_when_none_is_intact_the_run_does_not_silently_start_again(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [1])
    (tmp_path / "step-000001" / "state.json").unlink()
    with pytest.raises(RunError, match="rerun=true"):
        store.newest()


def test_a_write_that_fails_leaves_the_earlier_checkpoints_alone(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [1])

    def fail(folder: Path) -> None:
        write(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.save(RunState(2, 20), fail)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]


def test_a_partial_folder_left_by_a_kill_is_not_a_checkpoint(tmp_path: Path) -> None:
    store, warnings = store_with(tmp_path, [1])
    partial = tmp_path / ".step-000002.partial"
    partial.mkdir()
    write(partial)
    found = store.newest()
    assert found is not None
    assert found[0].step == 1
    assert warnings == []
    store.save(RunState(2, 20), write)
    assert not partial.exists()


def test_pruning_removes_a_damaged_later_one_and_never_the_one_just_written(tmp_path: Path) -> None:
    store_with(tmp_path, [8, 10], keep=1)
    store_with(tmp_path, [9], keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000009"]


def test_saving_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [1, 1])
    found = store.newest()
    assert found is not None
    assert found[0].step == 1
