"""Of launchers that want the same point, one gets it."""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.process import this_process
from specrl.run_folder import exclusive
from specrl.sweep.claim import claim
from specrl.sweep.point import PointTask
from specrl.sweep.status import STATUS_FILE, State, Status, read_status, write_status

HERE = this_process()
DEAD = replace(HERE, started_s=0.0)
OTHER = replace(HERE, host="elsewhere")  # its heartbeat is fresh: the status was just written


def unknown(_: Status) -> None:
    return None


def task_in(folder: Path, *words: str) -> PointTask:
    return PointTask(load(["drafter=none", "steps=5", *words]), folder, words)


def claimed(task: PointTask, since_s: float = 0.0) -> str:
    return claim(task, HERE, since_s, unknown)


def test_a_new_point_is_queued_for_who_asks(tmp_path: Path) -> None:
    assert claimed(task_in(tmp_path / "run", "seed=1")) == "ours"
    status = read_status(tmp_path / "run")
    assert status is not None
    assert (status.state, status.process, status.overrides) == ("queued", HERE, ("seed=1",))
    assert claimed(task_in(tmp_path / "run", "seed=1")) == "ours"


@pytest.mark.parametrize("state", ["queued", "running"])
def test_what_a_living_launcher_has_is_its_own_and_what_a_dead_one_left_is_not(
    tmp_path: Path, state: str
) -> None:
    write_status(tmp_path, Status(state, process=OTHER))
    assert claimed(task_in(tmp_path)) == "theirs"
    assert read_status(tmp_path) == Status(state, process=OTHER)
    write_status(tmp_path, Status(state, process=DEAD, attempt=2, seconds=9.0))
    assert claimed(task_in(tmp_path)) == "ours"
    status = read_status(tmp_path)
    assert status is not None
    assert (status.attempt, status.seconds) == (2, 9.0)


@pytest.mark.parametrize("state", ["queued", "failed", "interrupted"])
@pytest.mark.parametrize(("knows", "expected"), [(True, "theirs"), (False, "ours")])
def test_a_scheduler_that_knows_the_job_is_believed(
    tmp_path: Path, knows: bool, expected: str, state: State
) -> None:
    write_status(tmp_path, Status(state, process=DEAD if knows else OTHER, job="7"))
    assert claim(task_in(tmp_path), HERE, 0.0, lambda _: knows) == expected


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_what_did_not_finish_is_tried_again(tmp_path: Path, state: str) -> None:
    write_status(tmp_path, Status(state, process=OTHER, steps=5, ended_s=1.0))
    assert claimed(task_in(tmp_path)) == "ours"


def test_finished_means_as_many_steps_as_are_asked_for(tmp_path: Path) -> None:
    write_status(tmp_path, Status("finished", steps=5, ended_s=10.0))
    assert claimed(task_in(tmp_path)) == "done"
    assert claimed(task_in(tmp_path, "steps=4")) == "done"
    assert claimed(task_in(tmp_path, "steps=6")) == "ours"


def test_with_rerun_only_what_ended_since_the_launch_is_done(tmp_path: Path) -> None:
    write_status(tmp_path, Status("finished", steps=5, seconds=3.0, ended_s=10.0))
    assert claimed(task_in(tmp_path, "rerun=true"), since_s=9.0) == "done"
    assert claimed(task_in(tmp_path, "rerun=true"), since_s=11.0) == "ours"
    status = read_status(tmp_path)
    assert status is not None
    assert status.seconds == 0.0


def test_a_damaged_status_is_no_end_and_its_holder_is_not_run_beside(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).write_text("[]")
    with exclusive(tmp_path):
        assert claim(task_in(tmp_path), OTHER, 0.0, unknown) == "theirs"
    assert (tmp_path / STATUS_FILE).read_text() == "[]"
    assert claimed(task_in(tmp_path)) == "ours"
    status = read_status(tmp_path)
    assert status is not None
    assert (status.state, status.process, status.seconds) == ("queued", HERE, 0.0)


def test_the_seconds_of_an_attempt_that_was_killed_are_kept(tmp_path: Path) -> None:
    write_status(tmp_path, Status("running", process=DEAD, seconds=9.0, started_s=100.0))
    os.utime(tmp_path / STATUS_FILE, (130.0, 130.0))
    assert claimed(task_in(tmp_path)) == "ours"
    status = read_status(tmp_path)
    assert status is not None
    assert status.seconds == 39.0


def test_of_launchers_that_ask_at_once_one_gets_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    task = task_in(tmp_path / "run")
    start_s = time.monotonic() + 0.3
    got = context.SimpleQueue()
    over = context.Event()

    def ask() -> None:
        me = this_process()
        time.sleep(max(0.0, start_s - time.monotonic()))
        got.put((os.getpid(), claim(task, me, 0.0, unknown)))
        over.wait()  # the claim of a dead one would not count

    workers = [context.Process(target=ask) for _ in range(4)]
    answers = _answers(workers, got.get)
    over.set()
    for worker in workers:
        worker.join()
    (winner,) = [pid for pid, answer in answers if answer == "ours"]
    status = read_status(tmp_path / "run")
    assert status is not None
    assert status.process is not None
    assert status.process.pid == winner


def _answers(
    workers: list[multiprocessing.context.ForkProcess], get: Callable[[], tuple[int, str]]
) -> list[tuple[int, str]]:
    for worker in workers:
        worker.start()
    return [get() for _ in workers]
