"""Points on a real Slurm of nodes of this machine, without accounting."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import slurm_runs
from slurm_points import PATIENCE_S, POLL_S, make_room, point, status, wait_for

from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.errors import RunError
from specrl.sweep.executor import Job
from specrl.sweep.launch import launch
from specrl.sweep.point import PointTask
from specrl.sweep.points import point_of
from specrl.sweep.slurm import SlurmPoints
from specrl.sweep.slurm_job import JOB_FOLDER
from specrl.sweep.status import Status, read_status
from specrl.sweep.table import rows_of
from specrl.telemetry.jsonl import METRICS_FILE, read_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_failing_and_a_killed_point_do_not_stop_a_good_one_and_are_retried(slurm: Path) -> None:
    tasks = [
        point(slurm, slurm_runs.finishes, 0),
        point(slurm, slurm_runs.raises_once, 1),
        point(slurm, slurm_runs.is_killed_once, 2),
    ]
    with pytest.raises(RunError, match="2 of 3 points did not finish"):
        launch(tasks, SlurmPoints(POLL_S), ["seed=0,1,2"])
    good, raised, killed = map(status, tasks)
    assert (good.state, raised.state, killed.state) == ("finished", "failed", "failed")
    assert raised.reason == "the planned error"
    assert "task 0: Killed" in killed.reason
    assert str(killed.job) in killed.reason

    launch(tasks, SlurmPoints(POLL_S), ["seed=0,1,2"])
    assert [status(task).state for task in tasks] == ["finished"] * 3
    assert [status(task).attempt for task in tasks] == [1, 2, 2]
    assert [(task.folder / "calls").read_text() for task in tasks] == ["x", "xx", "xx"]


def test_a_job_killed_to_make_room_goes_on_by_itself_and_a_cancelled_one_does_not(
    slurm: Path,
) -> None:
    task = point(slurm, slurm_runs.is_deaf_once, 3, "cluster.partition=abrupt")
    (job,) = SlurmPoints(POLL_S).submit([task])
    calls = task.folder / "calls"
    wait_for(calls.exists, "the start", job.log)
    make_room()
    wait_for(lambda: told(task).state == "queued", "its return to the queue", job.log)
    wait_for(lambda: calls.read_text() == "xx", "the second start", job.log)
    assert (status(task).state, status(task).attempt) == ("running", 2)
    assert job.poll() is None

    subprocess.run(["scancel", str(job.id)], check=True)
    wait_for(job.poll, "the end", job.log)
    cancelled = f"Slurm job {job.id} ended as CANCELLED"
    assert cancelled in str(job.poll())
    assert cancelled in told(task).reason


def told(task: PointTask) -> Status:
    """What readers are shown."""
    (row,) = rows_of([point_of(task)])
    return row.status


def test_what_slurm_refuses_is_a_failed_point_with_slurm_s_words(slurm: Path) -> None:
    task = point(slurm, slurm_runs.finishes, 4, "cluster.partition=nowhere")
    (job,) = SlurmPoints(POLL_S).submit([task])
    end = job.poll()
    assert end is not None
    assert "partition" in end.reason


@pytest.fixture(scope="module")
def pair(slurm: Path) -> Iterator[list[tuple[PointTask, Job]]]:
    """Two jobs at once, each on both nodes of one machine."""
    tasks = [point(slurm, slurm_runs.on_every_node, seed, "cluster.nodes=2") for seed in (5, 6)]
    jobs = SlurmPoints(POLL_S).submit(tasks)
    for task, job in zip(tasks, jobs, strict=True):
        wait_for(begun_or_ended(task, job), "an actor on each node", job.log)
        assert job.poll() is None, f"{status(task).reason}: {job.log.read_text()}"
    yield list(zip(tasks, jobs, strict=True))
    for job in jobs:
        job.kill()


def begun_or_ended(task: PointTask, job: Job) -> Callable[[], bool]:
    return lambda: (task.folder / slurm_runs.FOUND).exists() or job.poll() is not None


def found(task: PointTask) -> dict[str, object]:
    told: dict[str, object] = json.loads((task.folder / slurm_runs.FOUND).read_text())
    return told


def test_two_jobs_on_the_same_hosts_each_see_their_own_nodes(
    pair: list[tuple[PointTask, Job]],
) -> None:
    for task, _ in pair:
        told = found(task)
        assert told["nodes"] == 2
        assert [host for host, _ in told["actors"]] == ["n1", "n2"]


def test_the_death_of_another_rank_ends_the_job_with_its_name(
    pair: list[tuple[PointTask, Job]],
) -> None:
    task, job = pair[0]
    os.kill(rank_process(task, 1).pid, signal.SIGKILL)
    wait_for(job.poll, "the end of the job", job.log)
    assert status(task).state == "failed"
    assert f"n2 (rank 1 of Slurm job {job.id}) died" in status(task).reason
    assert_nothing_left(task, job)


def test_the_death_of_the_driver_ends_the_job_too(pair: list[tuple[PointTask, Job]]) -> None:
    task, job = pair[1]
    assert job.poll() is None, "it should not have noticed the end of the other job"
    os.kill(rank_process(task, 0).pid, signal.SIGKILL)
    wait_for(job.poll, "the end of the job", job.log)
    end = job.poll()
    assert end is not None
    assert "n1: task 0: Killed" in end.reason
    assert_nothing_left(task, job)


def rank_process(task: PointTask, rank: int) -> psutil.Process:
    """The process that submitit started for the rank."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        ours = "submitit.core._submit" in words and str(task.folder / "slurm") in words
        if (
            ours
            and not words[0].endswith("srun")
            and process.environ().get("SLURM_PROCID") == str(rank)
        ):
            return process
    raise AssertionError(f"no process of rank {rank}")


def assert_nothing_left(task: PointTask, job: Job) -> None:
    """Neither actors nor Ray's own processes, on any node."""
    pids = [pid for _, pid in found(task)["actors"]]

    def left() -> list[str]:
        ours = f"-{job.id}-"
        return [
            " ".join(process.info["cmdline"] or [])
            for process in psutil.process_iter(["cmdline", "pid", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE
            and (
                process.info["pid"] in pids
                or any("specrl-" in word and ours in word for word in process.info["cmdline"] or [])
            )
        ]

    wait_for(lambda: not left(), "the end of every process")


def metrics_lines(folder: Path) -> int:
    path = folder / METRICS_FILE
    return path.read_text().count("\n") if path.exists() else 0


def test_training_over_two_nodes_goes_on_after_pre_emption_in_the_same_run(slurm: Path) -> None:
    words = [
        *("debug=tiny", "cluster=slurm_cpu", "cluster.nodes=2", "seed=7", "steps=40"),
        "cluster.partition=low",
        *(f"output_dir={slurm}", f"model.cache_dir={slurm / 'cache'}", "evaluation.every=0"),
        *("tracking=mlflow", f"tracking.uri=sqlite:///{slurm / 'mlflow.db'}"),
    ]
    folder = run_folder(load(words))
    launcher = ["hydra/launcher=specrl_slurm", f"hydra.launcher.poll_s={POLL_S}"]
    program = "from specrl.cli.train import main; main()"
    command = [sys.executable, "-c", program, "-m", *launcher, *words]
    with (slurm / "sweep.log").open("w") as log:
        sweep = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(
            lambda: sweep.poll() is not None or metrics_lines(folder) > 2,
            "the first steps",
            slurm / "sweep.log",
        )
        assert sweep.poll() is None, (slurm / "sweep.log").read_text()
        before = read_status(folder)
        assert before is not None
        make_room()
        assert sweep.wait(PATIENCE_S) == 0, (slurm / "sweep.log").read_text()
    finally:
        sweep.kill()
    after = read_status(folder)
    assert after is not None
    assert (after.state, after.attempt, after.job) == ("finished", 2, before.job)
    log = folder / JOB_FOLDER / f"{after.job}_0_log.out"
    said = log.read_text()
    assert "going on from" in said
    assert "DUE TO PREEMPTION" not in said, "it should have left, saved, within the grace time"
    assert [record.step for record in read_run(folder).records] == list(range(40))
    with sqlite3.connect(slurm / "mlflow.db") as tracked:
        of_points = "SELECT status FROM runs JOIN tags USING (run_uuid) WHERE key = ?"
        assert tracked.execute(of_points, ["mlflow.parentRunId"]).fetchall() == [("FINISHED",)]
    assert {"engine-0.log", "learner-0.log", "weights-1.log"} <= set(os.listdir(folder / "logs"))
