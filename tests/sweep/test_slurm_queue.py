"""What a launcher makes of Slurm's answers; the real Slurm is in tests/slurm."""

from dataclasses import replace
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.errors import UserError
from specrl.sweep.executor import JobEnd
from specrl.sweep.local import LocalPoints
from specrl.sweep.point import PointTask
from specrl.sweep.points import point_of
from specrl.sweep.slurm import COMMANDS, SlurmJob, SlurmPoints, preview
from specrl.sweep.slurm_queue import Queue, told_by_slurm
from specrl.sweep.status import Status, write_status
from specrl.sweep.table import rows_of

ANSWER = "squeue-answer"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands as scripts; squeue prints the file `ANSWER`, and fails without one."""
    for name in COMMANDS:
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\necho {name} $* >> {tmp_path}/asked\n")
        script.chmod(0o755)
    with (tmp_path / "squeue").open("a") as squeue:
        squeue.write(f"exec /bin/cat {tmp_path / ANSWER}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def job(slurm: Path, answer: str | None) -> SlurmJob:
    if answer is not None:
        (slurm / ANSWER).write_text(answer)
    return SlurmJob("7", slurm / "log", Queue(poll_s=0))


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"])
def test_a_job_in_the_queue_has_not_ended(slurm: Path, state: str) -> None:
    assert job(slurm, f"6|FAILED|None\n7|{state}|None\n").poll() is None


def test_a_job_that_slurm_calls_completed_has_nothing_to_explain(slurm: Path) -> None:
    assert job(slurm, "7|COMPLETED|None\n").poll() == JobEnd()


def test_a_dead_job_is_explained_in_slurm_s_own_words(slurm: Path) -> None:
    (slurm / "log").write_text("a step\nsrun: error: n2: task 1: Killed\nthe end\n")
    end = job(slurm, "7|FAILED|NonZeroExitCode\n").poll()
    assert end is not None
    assert "FAILED (NonZeroExitCode): srun: error: n2: task 1: Killed" in end.reason


def test_a_job_that_slurm_has_forgotten_is_over(slurm: Path) -> None:
    end = job(slurm, "6|RUNNING|None\n").poll()
    assert end is not None
    assert "does not list it" in end.reason


def test_nobody_is_declared_dead_while_slurm_does_not_answer(slurm: Path) -> None:
    assert job(slurm, None).poll() is None
    assert SlurmPoints(0).alive(Status("running", job="7")) is None


def test_another_launcher_s_job_is_known_by_its_number(slurm: Path) -> None:
    (slurm / ANSWER).write_text("7|RUNNING|None\n8|FAILED|None\n")
    points = SlurmPoints(0)
    alive = [points.alive(Status("running", job=name)) for name in ("7", "8", "9", None)]
    assert alive == [True, False, False, None]


@pytest.mark.parametrize(
    ("written", "slurm_state", "state", "reason"),
    [
        (Status("running"), "PENDING", "queued", "Slurm job 7 is back in the queue"),
        (Status("failed", "no word"), "PENDING", "queued", "is back in the queue; before: no word"),
        (Status("running"), "CANCELLED", "failed", "Slurm job 7 ended as CANCELLED; the same"),
        (Status("queued", "it is back"), "CANCELLED", "queued", "7 ended as CANCELLED; the same"),
        (Status("failed", "no room"), "FAILED", "failed", "no room"),
        (Status("running", "as ever"), "RUNNING", "running", "as ever"),
        (Status("finished", "as ever"), "PENDING", "finished", "as ever"),
    ],
)
def test_slurm_knows_of_jobs_that_were_killed_before_they_could_say_a_word(
    slurm: Path, written: Status, slurm_state: str, state: str, reason: str
) -> None:
    (slurm / ANSWER).write_text(f"7|{slurm_state}|None\n")
    told = told_by_slurm(replace(written, job="7"), Queue(0))
    assert told.state == state
    assert reason in told.reason
    (slurm / ANSWER).write_text("8|PENDING|None\n")
    assert told_by_slurm(replace(written, job="7"), Queue(0)) == replace(written, job="7")


def test_readers_are_shown_what_slurm_says(slurm: Path) -> None:
    task = point(slurm)
    task.folder.mkdir()
    write_status(task.folder, Status("running", job="7"))
    (slurm / ANSWER).write_text("7|PENDING|BeginTime\n")
    (row,) = rows_of([point_of(task)])
    assert row.status.state == "queued"


def test_what_runs_is_told_to_save_and_what_waits_is_cancelled(slurm: Path) -> None:
    running = job(slurm, "7|RUNNING|None\n")
    running.stop()
    running.stop()
    job(slurm, "7|PENDING|None\n").stop()
    asked = [line for line in (slurm / "asked").read_text().splitlines() if "scancel" in line]
    assert asked == ["scancel --signal=SIGUSR1 7", "scancel 7", "scancel 7"]


def test_a_machine_without_slurm_is_told_apart_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sbatch is not on PATH"):
        SlurmPoints()


def point(tmp_path: Path, *overrides: str) -> PointTask:
    config = load(["debug=tiny", f"output_dir={tmp_path}", *overrides])
    return PointTask(config, run_folder(config), overrides)


def test_a_slurm_cluster_is_no_place_for_processes_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cluster=slurm_cpu lives in a Slurm job; add hydra/launch"):
        LocalPoints(1).check(point(tmp_path, "cluster=slurm_cpu"))
    LocalPoints(1).check(point(tmp_path))


def test_this_machine_is_no_cluster_for_slurm(slurm: Path) -> None:
    with pytest.raises(UserError, match="cannot use cluster=local"):
        SlurmPoints().check(point(slurm))


def test_a_preview_has_the_counts_the_layout_and_the_whole_script(tmp_path: Path) -> None:
    lines = preview(
        point(
            tmp_path,
            *("cluster=gb200_nvl72", "cluster.nodes=3", "cluster.partition=batch"),
            *("cluster.account=me", "cluster.sbatch=['--reservation=mine']"),
            *("cluster.setup=['module load cuda']", "cluster.container_image=/images/specrl.sqsh"),
            "cluster.container_mounts=['/lustre:/lustre']",
        )
    )
    assert lines[:4] == [
        "3 nodes x 4 GPUs = 12 GPUs; 1 of the nodes idle",
        "node 0: learner-0",
        "node 1: engine-0",
        "node 2: idle",
    ]
    for expected in (
        *("#SBATCH --nodes=3", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=4"),
        *("#SBATCH --partition=batch", "#SBATCH --account=me", "#SBATCH --reservation=mine"),
        *("#SBATCH --requeue", "#SBATCH --signal=USR2@900", "module load cuda"),
    ):
        assert expected in lines
    (begins,) = (n for n, line in enumerate(lines) if line.startswith("srun "))
    srun = lines[begins]
    (forgets,) = (n for n, line in enumerate(lines) if line.startswith("rm -f "))
    assert forgets < begins, "what an earlier attempt asked for would send this one back"
    assert lines[forgets].removeprefix("rm -f ") in "".join(lines[begins:])
    assert "--container-image=/images/specrl.sqsh --container-mounts=/lustre:/lustre" in srun
