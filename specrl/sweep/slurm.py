"""Points as Slurm jobs, through submitit."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor
from submitit.core.utils import FailedJobError, FailedSubmissionError

from specrl.cluster.slurm_task import BATCH_LINES
from specrl.config.cluster import SlurmConfig
from specrl.config.node_layout import node_layout
from specrl.config.train import TrainConfig
from specrl.errors import UserError
from specrl.sweep.executor import Job, JobEnd
from specrl.sweep.point import PointTask
from specrl.sweep.slurm_job import JOB_FOLDER, REQUEUE_MARK, STOP_SIGNAL, PointOnNodes
from specrl.sweep.slurm_queue import Queue, ask
from specrl.sweep.status import Status

LINGER_S = 60  # beside signal_delay_s: how long tasks may outlive the first that ended
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
COMPLAINTS = ("srun: error: ", "slurmstepd: error: ")
SUBMITIT_STARTS = "Starting with JobEnvironment("
LOG_TAIL_BYTES = 1 << 16


class SlurmPoints:
    """Implements `Executor`: one job a point, all of them in the queue at once."""

    def __init__(self, poll_s: float = 10.0) -> None:
        """`poll_s` are the seconds between two questions to squeue.

        Raises `UserError` where Slurm's commands are not installed.
        """
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
    queue: Queue
    stopped: bool = False

    def poll(self) -> JobEnd | None:
        entry = self.queue.entry(self.id)
        if entry is None or not entry.ended:
            return None
        if entry.state == "COMPLETED":
            return JobEnd()
        said = f": {words}" if (words := complaint(self.log)) else ""
        return JobEnd(f"{entry.words(self.id)}{said}")

    def stop(self) -> None:
        """What runs saves and ends; what waits, or is asked again, is cancelled."""
        entry = self.queue.entry(self.id)
        saves = entry is not None and entry.state == "RUNNING" and not self.stopped
        ask("scancel", *([f"--signal={STOP_SIGNAL.name}"] if saves else []), self.id)
        self.stopped = True

    def kill(self) -> None:
        ask("scancel", "--signal=KILL", self.id)
        ask("scancel", self.id)


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
    mark = f'{shlex.quote(str(folder))}/"$SLURM_JOB_ID"{REQUEUE_MARK}'
    setup = [
        f"rm -f {mark}",  # of an attempt that Slurm sent back before this script could
        *("export SLURM_KILL_BAD_EXIT=0", f"export SLURM_WAIT={linger_s}"),
        *BATCH_LINES,
        *cluster.setup,
    ]
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


def complaint(log: Path) -> str:
    """What Slurm said first in the last attempt of a job, by its log; "" where it said nothing."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        attempt = file.read().decode(errors="replace").rpartition(SUBMITIT_STARTS)[2]
        return next((line for line in attempt.splitlines() if line.startswith(COMPLAINTS)), "")
    return ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), text)
