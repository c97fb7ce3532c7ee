"""Points as Slurm jobs, through submitit; what became of them is asked of squeue, not of sacct."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor
from submitit.core.utils import FailedJobError, FailedSubmissionError

from specrl.cluster.slurm_task import BATCH_LINES
from specrl.config.bounds import at_least
from specrl.config.cluster import SlurmConfig
from specrl.config.node_layout import node_layout
from specrl.config.train import TrainConfig
from specrl.errors import UserError
from specrl.sweep.executor import Job, JobEnd
from specrl.sweep.point import PointTask
from specrl.sweep.slurm_job import JOB_FOLDER, REQUEUE_MARK, PointOnNodes
from specrl.sweep.status import Status

COMMAND_S = 60.0  # squeue and scancel answer within it, or count as not answering
LINGER_S = 60  # beside signal_delay_s: how long tasks may outlive the first that ended
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
COMPLAINTS = ("srun: error: ", "slurmstepd: error: ")
SUBMITIT_STARTS = "Starting with JobEnvironment("
LOG_TAIL_BYTES = 1 << 16


class SlurmPoints:
    """Implements `Executor`: one job a point, all of them in the queue at once."""

    def __init__(self, poll_s: float = 10.0) -> None:
        """`poll_s` are the seconds between two questions to squeue.

        Raises `UserError` for fewer than 0, and where Slurm's commands are not installed.
        """
        at_least("hydra.launcher.poll_s", poll_s, 0)
        missing = [command for command in COMMANDS if shutil.which(command) is None]
        if missing:
            raise UserError(
                f"hydra/launcher=specrl_slurm needs Slurm's commands and {missing[0]} is not on "
                "PATH; start the sweep on a node that submits jobs"
            )
        self._queue = Queue(poll_s)

    @property
    def at_once(self) -> int | None:
        return None

    def check(self, task: PointTask) -> None:
        slurm_config(task.config)

    def submit(self, tasks: Sequence[PointTask]) -> list[Job]:
        return [self._submit(task) for task in tasks]

    def alive(self, status: Status) -> bool | None:
        if status.job is None or not status.job.isdigit():
            return None
        entry = self._queue.entry(status.job)
        return None if entry is None else not entry.ended

    def _submit(self, task: PointTask) -> Job:
        folder = task.folder / JOB_FOLDER
        executor = _executor(SlurmExecutor, task)
        try:
            job = executor.submit(PointOnNodes(task))
        except (FailedJobError, FailedSubmissionError) as error:
            return Refused(folder, f"sbatch: {_last_line(str(error))}")
        self._queue.expect(job.job_id)
        return SlurmJob(job.job_id, folder / f"{job.job_id}_0_log.out", self._queue)


@dataclass
class SlurmJob:
    """Implements `Job`."""

    id: str
    log: Path
    queue: "Queue"
    stopped: bool = False

    def poll(self) -> JobEnd | None:
        entry = self.queue.entry(self.id)
        if entry is None or not entry.ended:
            return None
        if entry.state == "COMPLETED":
            return JobEnd()
        why = f" ({entry.reason})" if entry.reason not in {"", "None"} else ""
        said = f": {words}" if (words := complaint(self.log)) else ""
        return JobEnd(f"Slurm job {self.id} ended as {entry.state}{why}{said}")

    def stop(self) -> None:
        """What runs saves and ends; what waits, or is asked again, is cancelled."""
        entry = self.queue.entry(self.id)
        runs = entry is not None and entry.state == "RUNNING"
        _ask("scancel", *([] if self.stopped or not runs else ["--signal=TERM"]), self.id)
        self.stopped = True

    def kill(self) -> None:
        _ask("scancel", "--signal=KILL", self.id)
        _ask("scancel", self.id)


@dataclass(frozen=True)
class Refused:
    """A `Job` that Slurm did not take."""

    log: Path
    reason: str
    id: None = None

    def poll(self) -> JobEnd | None:
        return JobEnd(self.reason)

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Entry:
    """What squeue says of a job; GONE once Slurm has forgotten it."""

    state: str
    reason: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED or self.state == "GONE"


@dataclass
class Queue:
    """The user's jobs, all asked for in one go at most every `poll_s` seconds."""

    poll_s: float
    _entries: dict[str, Entry] | None = None
    _asked_s: float = field(default=float("-inf"))

    def entry(self, job: str) -> Entry | None:
        """None while Slurm does not answer: nobody knows then."""
        if time.monotonic() - self._asked_s >= self.poll_s:
            self._asked_s = time.monotonic()
            self._entries = _listed()
        if self._entries is None:
            return None
        return self._entries.get(job, Entry("GONE", "squeue does not list it any more"))

    def expect(self, job: str) -> None:
        """It has just been submitted; the list in hand is older."""
        if self._entries is not None:
            self._entries[job] = Entry("PENDING", "")


def preview(task: PointTask) -> list[str]:
    """What would be submitted, for people: counts, where each process goes, the batch script."""
    cluster = slurm_config(task.config)
    layout = node_layout(task.config)
    gpus = cluster.nodes * cluster.gpus_per_node
    idle = f"; {layout.idle_nodes} of the nodes idle" if layout.idle_nodes else ""
    executor = _executor(_Anywhere, task)
    script = executor._make_submission_file_text(executor._submitit_command_str, "")
    return [
        f"{cluster.nodes} nodes x {cluster.gpus_per_node} GPUs = {gpus} GPUs{idle}",
        *layout.lines(),
        *script.rstrip().splitlines(),
    ]


def slurm_config(config: TrainConfig) -> SlurmConfig:
    """Raises `UserError` for a cluster that is not Slurm's."""
    cluster = config.cluster
    if not isinstance(cluster, SlurmConfig):
        raise UserError(
            f"hydra/launcher=specrl_slurm cannot use cluster={cluster.name}, which is this "
            "machine; use cluster=slurm_cpu, h100 or gb200_nvl72"
        )
    return cluster


class _Anywhere(SlurmExecutor):
    """Writes scripts where there is no Slurm, too."""

    @classmethod
    def affinity(cls) -> int:
        return 1


def _executor(kind: type[SlurmExecutor], task: PointTask) -> SlurmExecutor:
    cluster = slurm_config(task.config)
    folder = task.folder.absolute() / JOB_FOLDER
    python = cluster.python or sys.executable
    executor = kind(folder, python=shlex.quote(python))
    executor.update_parameters(**_parameters(cluster, folder, task.folder.name))
    return executor


def _parameters(cluster: SlurmConfig, folder: Path, name: str) -> dict[str, Any]:
    """submitit's names of them; what is None is left to Slurm."""
    # Another task may save what the death of one leaves: srun waits for it before it kills.
    linger_s = cluster.signal_delay_s + LINGER_S
    setup = [
        *("export SLURM_KILL_BAD_EXIT=0", f"export SLURM_WAIT={linger_s}"),
        *BATCH_LINES,
        *cluster.setup,
    ]
    mark = f'{shlex.quote(str(folder))}/"$SLURM_JOB_ID"{REQUEUE_MARK}'
    teardown = [
        "code=$?",
        f'if rm {mark} 2>/dev/null; then scontrol requeue "$SLURM_JOB_ID"; fi',
        "exit $code",
    ]
    return {
        "job_name": name,
        "nodes": cluster.nodes,
        "ntasks_per_node": 1,
        "cpus_per_task": cluster.cpus_per_node or None,
        "gpus_per_node": cluster.gpus_per_node or None,
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "time": cluster.time_limit_min,
        "signal_delay_s": cluster.signal_delay_s,
        "stderr_to_stdout": True,
        "setup": setup,
        "teardown": teardown,
        "srun_args": _container(cluster),
        "additional_parameters": {"requeue": True, **_options(cluster.sbatch)},
    }


def _container(cluster: SlurmConfig) -> list[str]:
    if cluster.container_image is None:
        return []
    mounts = ",".join(cluster.container_mounts)
    return [
        f"--container-image={cluster.container_image}",
        *([f"--container-mounts={mounts}"] if mounts else []),
    ]


def _options(lines: Sequence[str]) -> Mapping[str, str | bool]:
    pairs = [line.removeprefix("--").partition("=") for line in lines]
    return {name: value if sign else True for name, sign, value in pairs}


def _listed() -> dict[str, Entry] | None:
    said = _ask("squeue", "--noheader", "--me", "--states=all", "--format=%A|%T|%r")
    if said is None:
        return None
    fields = [line.split("|", 2) for line in said.splitlines() if line.count("|") >= 2]
    return {job.strip(): Entry(state.strip(), reason.strip()) for job, state, reason in fields}


def _ask(*command: str) -> str | None:
    """What the command prints; None when it fails or does not answer."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        return done.stdout
    return None


def complaint(log: Path) -> str:
    """What Slurm said first in the last attempt of a job, by its log; "" where it said nothing."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        attempt = file.read().decode(errors="replace").rpartition(SUBMITIT_STARTS)[2]
        return next((line for line in attempt.splitlines() if line.startswith(COMPLAINTS)), "")
    return ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), text)
