"""Tasks of a job notice each other's end at once."""

import queue
import subprocess
import sys

import pytest

from specrl.cluster.slurm_door import Door, DoorKey

SOON_S = 20.0
WELCOME_S = 1.0


@pytest.fixture
def lost() -> "queue.Queue[int]":
    return queue.Queue()


def test_a_task_that_is_killed_is_reported_by_its_rank(lost: "queue.Queue[int]") -> None:
    door = Door("127.0.0.1", "word", lost.put)
    code = (
        "import sys, time; from specrl.cluster.slurm_door import DoorKey;"
        f"key = DoorKey({door.address!r}, 'word', 3); print('in', flush=True); time.sleep(60)"
    )
    task = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert task.stdout is not None
    task.stdout.readline()
    task.kill()
    task.wait()
    assert lost.get(timeout=SOON_S) == 3
    door.close()


def test_the_end_of_the_job_is_told_and_loses_nobody(lost: "queue.Queue[int]") -> None:
    door = Door("127.0.0.1", "word", lost.put)
    key = DoorKey(door.address, "word", 1)
    assert key.wait(WELCOME_S) is None
    door.close()
    assert key.wait(SOON_S) is True
    del key
    assert lost.empty()


def test_a_task_that_comes_after_the_end_finds_nobody(lost: "queue.Queue[int]") -> None:
    door = Door("127.0.0.1", "word", lost.put)
    door.close()
    with pytest.raises(OSError, match="refused"):
        DoorKey(door.address, "word", 2)


def test_the_first_task_that_dies_is_noticed() -> None:
    code = (
        "import time; from specrl.cluster.slurm_door import Door;"
        "print(Door('127.0.0.1', 'word', print).address, flush=True); time.sleep(60)"
    )
    first = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert first.stdout is not None
    key = DoorKey(first.stdout.readline().decode().strip(), "word", 1)
    first.kill()
    first.wait()
    assert key.wait(SOON_S) is False


def test_a_stranger_is_turned_away_and_missed_by_nobody(lost: "queue.Queue[int]") -> None:
    door = Door("127.0.0.1", "word", lost.put)
    stranger = DoorKey(door.address, "another word", 1)
    assert stranger.wait(SOON_S) is False
    assert lost.empty()
    door.close()
