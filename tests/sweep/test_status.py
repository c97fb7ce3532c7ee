"""status.json: whole at any moment, and honest about processes that are gone."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from specrl.process import ProcessId, process_id, this_process
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


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"state": "running", "odd": 1}', "\0"])
def test_a_damaged_status_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / STATUS_FILE).write_text(text)
    assert read_status(tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": "9"},
        {"attempt": None},
        {"steps": [1]},
        {"reason": 5},
        {"log": 7},
        {"ended_s": "y"},
        {"overrides": 5},
        {"process": {"host": "a", "pid": "q", "started_s": 0.0}},
        {"process": {"host": 1, "pid": 1, "started_s": 0.0}},
        {"process": [1]},
    ],
)
def test_a_status_with_a_value_of_another_type_counts_as_none(
    tmp_path: Path, change: dict[str, object]
) -> None:
    (tmp_path / STATUS_FILE).write_text(json.dumps({"state": "queued"}))
    assert read_status(tmp_path) == Status("queued")
    (tmp_path / STATUS_FILE).write_text(json.dumps({"state": "queued", **change}))
    assert read_status(tmp_path) is None


def test_a_folder_in_its_place_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).mkdir()
    assert read_status(tmp_path) is None


def test_a_state_that_does_not_exist_counts_as_none(tmp_path: Path) -> None:
    write_status(tmp_path, replace(full_status(), state="odd"))
    assert read_status(tmp_path) is None


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
    assert settled(tmp_path, status) == status
    process.kill()  # and not reaped: a zombie is no living process
    while is_alive(tmp_path, status):
        time.sleep(0.01)
    seen = settled(tmp_path, status)
    assert seen.state == "failed"
    assert seen.reason == f"process {process.pid} on {socket.gethostname()} is gone without a word"
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


def test_the_seconds_of_every_attempt_add_up() -> None:
    first = replace(full_status(), seconds=0.0, started_s=100.0).ended("failed", "x", now_s=110.0)
    second = replace(first, state="running", started_s=200.0).ended("finished", now_s=205.0)
    assert (first.seconds, second.seconds, second.reason) == (10.0, 15.0, "")
