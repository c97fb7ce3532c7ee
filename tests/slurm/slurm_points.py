"""Points on the real Slurm of the tests, and two jobs of which most is waiting."""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import slurm_runs

from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.sweep.executor import Job
from specrl.sweep.point import PointTask, Run
from specrl.sweep.slurm import SlurmPoints
from specrl.sweep.status import Status, read_status

POLL_S = 0.5
PATIENCE_S = 400.0
JOIN_S = 30
SHORTEST = ("cluster.signal_delay_s=20",)  # what srun waits for other tasks follows from it


def point(base: Path, run: Run, seed: int, *overrides: str) -> PointTask:
    """A point of its own, on Slurm."""
    words = ("debug=tiny", "cluster=slurm_cpu", "tracking=none", f"seed={seed}", *overrides)
    config = load([*words, f"output_dir={base}", f"model.cache_dir={base / 'cache'}"])
    return PointTask(config, run_folder(config), words, run)


def status(task: PointTask) -> Status:
    found = read_status(task.folder)
    assert found is not None, f"{task.folder} has no status"
    return found


def wait_for(condition: Callable[[], object], what: str, log: Path | None = None) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        said = log.read_text()[-3000:] if log is not None and log.exists() else ""
        assert time.monotonic() < end, f"{what} did not happen: {said}"
        time.sleep(0.1)


def make_room() -> None:
    """A job arrives that pre-empts those of the partitions low and abrupt."""
    options = ["--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null"]
    subprocess.run(["sbatch", *options, "--wrap=true"], check=True)


class Submitted(NamedTuple):
    task: PointTask
    job: Job


def submit_ending(folder: Path) -> dict[str, Submitted]:
    """A job with a time limit and one whose second node never joins, side by side."""
    limited = point(folder, slurm_runs.waits, 20, "cluster.time_limit_min=2", *SHORTEST)
    deaf = point(
        folder,
        slurm_runs.on_every_node,
        21,
        *("cluster.nodes=2", f"cluster.join_deadline_s={JOIN_S}", *SHORTEST),
        f"cluster.python={deaf_python(folder)}",
    )
    tasks = {"limited": limited, "deaf": deaf}
    jobs = SlurmPoints(POLL_S).submit(list(tasks.values()))
    return {
        name: Submitted(task, job) for (name, task), job in zip(tasks.items(), jobs, strict=True)
    }


def deaf_python(folder: Path) -> Path:
    """A Python that does nothing on the second node."""
    script = folder / "deaf-python"
    python = shlex.quote(sys.executable)
    script.write_text(
        f'#!/bin/sh\n[ "$SLURM_PROCID" = 1 ] && exec sleep 3600\nexec {python} "$@"\n'
    )
    script.chmod(0o755)
    return script
