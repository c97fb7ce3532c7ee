"""Jobs that Slurm, a missing node or the launcher ends: on the real Slurm, several at once."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_points import JOIN_S, POLL_S, Submitted, status, wait_for

from specrl.sweep.executor import JobEnd
from specrl.sweep.record import records_in
from specrl.sweep.status import Status, read_status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RUNS, WAITS = 0, 36  # seeds: jobs are to begin that many hundred seconds later


def sweep(folder: Path, *words: str) -> subprocess.Popen[str]:
    code = (
        "import sys, slurm_runs; from specrl.cli.train import launch;"
        "sys.exit(launch(sys.argv[1:], slurm_runs.seed_0_waits))"
    )
    fixed = ["hydra/launcher=specrl_slurm", f"hydra.launcher.poll_s={POLL_S}", "debug=tiny"]
    fixed += ["cluster=slurm_cpu", "drafter=none", "tracking=none", f"output_dir={folder}"]
    return subprocess.Popen(
        [sys.executable, "-c", code, "-m", f"seed={RUNS},{WAITS}", *fixed, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_ctrl_c_of_the_launcher_saves_what_runs_and_cancels_what_waits(slurm: Path) -> None:
    folder = slurm / "interrupted"
    launcher = sweep(folder, "cluster.sbatch=['--begin=now+${seed}00']")
    wait_for(lambda: begun(folder) or launcher.poll() is not None, "the start of a point")
    assert launcher.poll() is None, launcher.communicate()
    launcher.send_signal(signal.SIGINT)
    said, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == 130, said
    assert "2 of 2 points are left; the same command goes on" in said
    ran, waited = points_of(folder)
    assert (ran.state, waited.state) == ("interrupted", "queued")
    assert [slurm_state(found) for found in (ran, waited)][1] == "CANCELLED"

    again = sweep(folder)
    said, _ = again.communicate(timeout=300)
    assert again.returncode == 0, said
    ran, waited = points_of(folder)
    assert (ran.state, ran.attempt) == ("finished", 2)
    assert waited.state == "finished"


def begun(folder: Path) -> bool:
    return any((p.folder / "calls").exists() for r in records_in(folder) for p in r.points)


def points_of(folder: Path) -> list[Status]:
    statuses = [read_status(p.folder) for record in records_in(folder) for p in record.points]
    return [found or Status("queued") for found in statuses]


def slurm_state(found: Status) -> str:
    command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={found.job}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_node_that_never_joins_is_named_and_the_job_ends(jobs: dict[str, Submitted]) -> None:
    task, job = jobs["deaf"]
    wait_for(job.poll, "the end of the job", job.log)
    found = status(task)
    assert found.state == "failed"
    assert f"n2 (rank 1) of 2 nodes did not join Ray in {JOIN_S} s" in found.reason


def test_at_its_time_limit_a_job_saves_and_goes_on_in_the_queue(
    jobs: dict[str, Submitted],
) -> None:
    task, job = jobs["limited"]
    wait_for(job.poll, "the end of the job", job.log)
    assert job.poll() == JobEnd()
    found = status(task)
    assert (found.state, found.attempt, found.job) == ("finished", 2, job.id)
    assert "time limit" not in job.log.read_text().lower()
