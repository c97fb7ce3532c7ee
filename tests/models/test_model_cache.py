"""The folder cache: made once, by one process, whole or not at all."""

import multiprocessing
import time
from pathlib import Path

import pytest

from specrl.errors import UserError
from specrl.models.cache import MARKER, cached_folder, folder_name, is_intact


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


def test_who_waits_for_another_process_can_say_so(tmp_path):
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=cached_folder, args=(tmp_path, "m", make))
    worker.start()
    while not (tmp_path / "made.log").exists():
        time.sleep(0.005)
    said = []
    cached_folder(tmp_path, "m", make, lambda: said.append("waiting"))
    worker.join()
    assert said == ["waiting"]
    assert times_made(tmp_path) == 1
    cached_folder(tmp_path, "m", make, lambda: said.append("again"))
    assert said == ["waiting"]


def test_a_cache_that_cannot_be_written_names_the_knob(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"model.cache_dir=.*SPECRL_CACHE"):
        cached_folder(tmp_path / "file" / "cache", "m", make)


def test_the_name_depends_on_the_recipe_and_is_a_file_name():
    assert folder_name("a/b c", "1") == folder_name("a/b c", "1")
    assert folder_name("a/b c", "1") != folder_name("a/b c", "2")
    assert "/" not in folder_name("a/b c", "1")
