"""The folder cache: made once, by one process, whole or not at all."""

import multiprocessing
import time
from pathlib import Path

import pytest

from specrl.errors import UserError
from specrl.models.cache import (
    MARKER,
    cached_folder,
    folder_name,
    is_intact,
    resumable_folder,
)


def make(folder: Path) -> None:
    with (folder.parent / "made.log").open("a") as log:
        log.write("made\n")
    time.sleep(0.3)
    (folder / "a.txt").write_text("content")
    (folder / "b.bin").write_bytes(b"x" * 1000)


def times_made(root: Path) -> int:
    return len((root / "made.log").read_text().splitlines())


def test_the_second_call_finds_what_the_first_made(tmp_path):
    folder = cached_folder(tmp_path, "m", make)
    assert cached_folder(tmp_path, "m", make) == folder
    assert (folder / "a.txt").read_text() == "content"
    assert times_made(tmp_path) == 1


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "no marker", "bad marker"])
def test_a_damaged_folder_is_made_again(tmp_path, damage):
    folder = cached_folder(tmp_path, "m", make)
    match damage:
        case "truncated":
            (folder / "b.bin").write_bytes(b"x" * 999)
        case "changed":
            (folder / "b.bin").write_bytes(b"x" * 999 + b"y")
        case "missing":
            (folder / "a.txt").unlink()
        case "no marker":
            (folder / MARKER).unlink()
        case "bad marker":
            (folder / MARKER).write_text("{")
    assert not is_intact(folder)
    assert is_intact(cached_folder(tmp_path, "m", make))
    assert (folder / "b.bin").read_bytes() == b"x" * 1000
    assert times_made(tmp_path) == 2


def test_a_failed_make_leaves_nothing_behind(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        cached_folder(tmp_path, "m", fail)
    assert [p.name for p in tmp_path.iterdir()] == [".m.lock"]
    assert is_intact(cached_folder(tmp_path, "m", make))


def test_what_a_killed_process_left_is_cleared(tmp_path):
    stale = tmp_path / ".m.123.tmp"
    stale.mkdir()
    (stale / "half").write_text("half")
    cached_folder(tmp_path, "m", make)
    assert not stale.exists()


@pytest.mark.slow
def test_processes_that_race_make_it_once(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=cached_folder, args=(tmp_path, "m", make)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert times_made(tmp_path) == 1
    assert is_intact(tmp_path / "m")


def _racing(root: Path) -> multiprocessing.context.ForkProcess:
    """A process that makes the folder and holds its lock."""
    worker = multiprocessing.get_context("fork").Process(
        target=cached_folder, args=(root, "m", make)
    )
    worker.start()
    while not (root / "made.log").exists() or not times_made(root):
        time.sleep(0.005)
    return worker


@pytest.mark.slow
def test_who_waits_says_which_process_makes_what(tmp_path):
    worker = _racing(tmp_path)
    said = []
    cached_folder(tmp_path, "m", make, said.append)
    worker.join()
    (line,) = said
    assert line.startswith(f"process {worker.pid} on ")
    assert line.endswith(f"builds {tmp_path / 'm'}; waiting for it")
    assert times_made(tmp_path) == 1
    cached_folder(tmp_path, "m", make, said.append)
    assert len(said) == 1


@pytest.mark.slow
def test_when_the_process_that_makes_it_dies_one_that_waits_takes_over(tmp_path):
    worker = _racing(tmp_path)
    worker.kill()
    assert is_intact(cached_folder(tmp_path, "m", make))
    worker.join()
    assert times_made(tmp_path) == 2


def test_a_cache_that_cannot_be_written_names_the_knob(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"model.cache_dir=.*SPECRL_CACHE"):
        cached_folder(tmp_path / "file" / "cache", "m", make)


def test_the_name_depends_on_the_recipe_and_is_a_file_name():
    assert folder_name("a/b c", "1") == folder_name("a/b c", "1")
    assert folder_name("a/b c", "1") != folder_name("a/b c", "2")
    assert "/" not in folder_name("a/b c", "1")


def test_a_build_that_broke_off_goes_on_with_what_it_left(tmp_path):
    def make_in_two_goes(folder: Path, work: Path) -> None:
        if not work.exists():
            work.mkdir()
            (work / "half").write_text("half")
            raise UserError("killed")
        (folder / "whole").write_text((work / "half").read_text() + " and half")

    with pytest.raises(UserError, match="killed"):
        resumable_folder(tmp_path, "m", make_in_two_goes, [].append)
    folder = resumable_folder(tmp_path, "m", make_in_two_goes, [].append)
    assert (folder / "whole").read_text() == "half and half"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.lock", "m"]
