"""status.json: whole at any moment, and honest about processes that are gone."""

import json
import math
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from specrl.errors import UserError
from specrl.process import ProcessId, process_id, this_process
from specrl.run_folder import exclusive
from specrl.sweep.status import (
    DEAD_AFTER_S,
    STATUS_FILE,
    Status,
    beat,
    changing,
    is_alive,
    read_status,
    settled,
    write_status,
)


def full_status() -> Status:
    return Status(
        state="running",
        reason="r" * 20_000,
        attempt=2,
        seconds=12.5,
        steps=7,
        process=this_process(),
        job="123",
        log="/runs/log",
        overrides=("drafter=none", "seed=1"),
        queued_s=1.0,
        started_s=2.0,
    )


def write_for_ever(folder: Path) -> None:
    while True:
        write_status(folder, full_status())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_status(tmp_path, full_status())
    assert read_status(tmp_path) == full_status()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "it is no JSON object"),
        ('"x"', "it is no JSON object"),
        ("null", "it is no JSON object"),
        ("{}", "state=None is none of queued, running, finished, failed, interrupted"),
        ('{"state": "running", "odd": 1}', "it has 'odd', which no status has"),
        ("\0", "Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_damaged_status_names_file_fault_and_fix(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / STATUS_FILE).write_text(text)
    assert damage(tmp_path) == (
        f"{tmp_path / STATUS_FILE} is damaged ({fault}); "
        "the same command goes on from the last checkpoint and writes it anew"
    )


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).write_bytes(b"\xff\xfe")
    assert "codec can't decode" in damage(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"state": []},
        {"state": "damaged"},
        {"seconds": "9"},
        {"seconds": -1.0},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": 10**400},
        {"attempt": True},
        {"attempt": 1.5},
        {"steps": math.inf},
        {"attempt": None},
        {"steps": [1]},
        {"reason": 5},
        {"log": 7},
        {"ended_s": "y"},
        {"overrides": 5},
        {"overrides": "seed=1"},
        {"overrides": [1]},
        {"process": 0},
        {"process": {"host": "a", "pid": 1}},
        {"process": {"host": "a", "pid": -1, "started_s": 0.0}},
        {"process": {"host": "a", "pid": 1, "started_s": 0.0, "odd": 1}},
        {"process": {"host": "a", "pid": "q", "started_s": 0.0}},
        {"process": {"host": 1, "pid": 1, "started_s": 0.0}},
        {"process": [1]},
    ],
)
def test_a_value_that_cannot_be_is_damage_and_named(
    tmp_path: Path, change: dict[str, object]
) -> None:
    (tmp_path / STATUS_FILE).write_text(json.dumps({"state": "queued"}))
    assert read_status(tmp_path) == Status("queued")
    (tmp_path / STATUS_FILE).write_text(json.dumps({"state": "queued", **change}))
    said = damage(tmp_path)
    inner = change["process"] if isinstance(change.get("process"), dict) else change
    assert any(name in said for name in (*inner, "started_s"))


def test_a_folder_in_its_place_is_damage_and_refuses_a_run_in_one_line(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).mkdir()
    assert damage(tmp_path).endswith(
        "(it is no file); remove it, then the same command goes on from the last checkpoint and "
        "writes it anew"
    )
    with pytest.raises(UserError, match="a folder in the place of a file; remove it"):
        changing(tmp_path).__enter__()


def test_what_waits_for_a_writer_is_damage_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / STATUS_FILE)
    assert "(it is no file)" in damage(tmp_path)


@pytest.mark.parametrize("text", ["[]", None])
def test_of_a_damaged_status_the_process_in_the_run_folder_answers(
    tmp_path: Path, text: str | None
) -> None:
    with exclusive(tmp_path):
        if text is not None:
            (tmp_path / STATUS_FILE).write_text(text)
        status = read_status(tmp_path)
        assert status is not None
        assert status.process == this_process()
        assert is_alive(tmp_path, status)
        assert f"{this_process()} has the run" in status.reason
    left = read_status(tmp_path)
    assert left is None if text is None else left is not None and not is_alive(tmp_path, left)


def damage(folder: Path) -> str:
    """What a damaged status says."""
    status = read_status(folder)
    assert status is not None
    assert status.damaged
    assert not is_alive(folder, status)
    return status.reason


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_a_whole_status(tmp_path: Path) -> None:
    write_status(tmp_path, full_status())
    for _ in range(10):
        writer = multiprocessing.get_context("fork").Process(
            target=write_for_ever, args=(tmp_path,)
        )
        writer.start()
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            assert read_status(tmp_path) is not None
        writer.kill()
        writer.join()
        found = read_status(tmp_path)
        assert found is not None
        assert len(found.reason) == 20_000


@pytest.mark.slow
def test_changes_of_two_processes_are_all_kept(tmp_path: Path) -> None:
    write_status(tmp_path, Status("queued"))

    def count() -> None:
        for _ in range(50):
            with changing(tmp_path) as status:
                assert status is not None
                write_status(tmp_path, replace(status, attempt=status.attempt + 1))

    workers = [multiprocessing.get_context("fork").Process(target=count) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = read_status(tmp_path)
    assert found is not None
    assert found.attempt == 150


def test_a_running_point_whose_process_was_killed_has_failed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    status = replace(full_status(), process=process_id(process.pid))
    write_status(tmp_path, status)
    os.utime(tmp_path / STATUS_FILE, (9.0, 9.0))
    assert settled(tmp_path, status).state == "running"
    process.kill()  # and not reaped: a zombie is no living process
    while is_alive(tmp_path, status):
        time.sleep(0.01)
    seen = settled(tmp_path, status)
    assert seen.state == "failed"
    assert seen.reason == (
        f"process {process.pid} on {socket.gethostname()} is gone without a word; "
        "the same command goes on"
    )
    assert seen.seconds == 12.5 + 7.0  # those before, and from its start to its last heartbeat
    process.communicate()


def test_a_process_number_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    old = replace(this_process(), started_s=this_process().started_s - 1000)
    status = replace(full_status(), process=old)
    write_status(tmp_path, status)
    assert settled(tmp_path, status).state == "failed"


@pytest.mark.parametrize("elsewhere", [{"host": "node7"}, {"namespace": 1}])
def test_of_another_machine_or_container_the_heartbeat_counts(
    tmp_path: Path, elsewhere: dict[str, object]
) -> None:
    there = replace(this_process(), pid=1, **elsewhere)
    status = replace(full_status(), process=there)
    write_status(tmp_path, status)
    assert is_alive(tmp_path, status)
    long_ago = time.time() - DEAD_AFTER_S - 1
    os.utime(tmp_path / STATUS_FILE, (long_ago, long_ago))
    assert not is_alive(tmp_path, status)
    beat(tmp_path)
    assert is_alive(tmp_path, status)
    from_the_future = time.time() + DEAD_AFTER_S + 60
    os.utime(tmp_path / STATUS_FILE, (from_the_future, from_the_future))
    assert not is_alive(tmp_path, status)


def test_what_is_over_is_never_dead(tmp_path: Path) -> None:
    gone = ProcessId(socket.gethostname(), 2**22 + 1, 0.0)
    status = replace(full_status(), state="finished", process=gone)
    assert settled(tmp_path, status) == status


def test_what_runs_has_its_seconds_until_now_and_a_clock_set_back_takes_none(
    tmp_path: Path,
) -> None:
    status = replace(full_status(), started_s=time.time() - 100)
    write_status(tmp_path, status)
    assert 112.5 <= settled(tmp_path, status).seconds < 200
    assert status.ended("failed", now_s=5.0).seconds == 12.5


def test_the_seconds_of_every_attempt_add_up() -> None:
    first = replace(full_status(), seconds=0.0, started_s=100.0).ended("failed", "x", now_s=110.0)
    second = replace(first, state="running", started_s=200.0).ended("finished", now_s=205.0)
    assert (first.seconds, second.seconds, second.reason) == (10.0, 15.0, "")
