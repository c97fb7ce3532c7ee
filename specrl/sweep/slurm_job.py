"""A point inside its Slurm job: what the task on each node does, and how the job ends."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType

from specrl.cluster.slurm_node import Meeting, follow, ray_head
from specrl.cluster.slurm_task import SlurmTask, this_task
from specrl.config.cluster import SlurmConfig
from specrl.config.train import TrainConfig
from specrl.sweep.point import PointTask, run_point, train
from specrl.sweep.status import State, Status, changing, known, read_status, write_status

JOB_FOLDER = "slurm"
"""Of a run folder: what submitit hands over, the output of every node, Ray's logs."""

REQUEUE_MARK = ".requeue"
"""`<job id>.requeue` in that folder asks the batch script to send the job back to the queue."""

STOP_SIGNAL = signal.SIGUSR1
"""Asks a job to save and end; after SIGTERM or SIGUSR2, which are Slurm's, it goes on later."""

RESTARTS = "SLURM_RESTART_COUNT"
REQUEUE_S = 10.0  # what the batch script needs to send the job back to the queue


@dataclass(frozen=True)
class PointOnNodes:
    """What submitit calls on every node of the job."""

    task: PointTask

    def __call__(self) -> None:
        """Leaves with exit code 1 when the run did not finish and is not requeued."""
        cluster = self.task.config.cluster
        assert isinstance(cluster, SlurmConfig), cluster
        here = this_task(self.task.folder / JOB_FOLDER)
        if here.rank:
            follow(here, cluster)
        else:
            _First(self.task, here, cluster).run()


@dataclass
class _First:
    """The task that drives.

    `lost` is the node whose task died, `told` that Slurm wants the nodes, `stopped` that people
    want the run to end.
    """

    task: PointTask
    here: SlurmTask
    cluster: SlurmConfig
    lost: str = ""
    told: bool = False
    stopped: bool = False
    backstop: threading.Timer | None = field(default=None, repr=False)

    def run(self) -> None:
        if int(os.environ.get(RESTARTS, "0")):  # it goes on, also where rerun=true began it
            self.task = replace(self.task, config=replace(self.task.config, rerun=False))
        meeting = Meeting(self.here, self.cluster, self._lost)
        try:
            with self._signals():
                run = partial(self._on_the_nodes, meeting)
                status = run_point(replace(self.task, run=run))
        finally:
            meeting.end()
        if self.backstop is not None:
            self.backstop.cancel()
        if status is not None and status.state != "finished":
            sys.exit(self._end(status))

    def _on_the_nodes(
        self, meeting: Meeting, config: TrainConfig, folder: Path, overrides: Sequence[str]
    ) -> None:
        with ray_head(self.here, self.cluster, meeting):
            (self.task.run or train)(config, folder, overrides)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """submitit would requeue in the handler, in the middle of a step; the loop saves first.

        Slurm's SIGTERM means pre-emption, a requeue or scancel; in the loop it is the loop's.
        """
        signal.signal(signal.SIGTERM, self._leave_the_nodes)
        signal.signal(STOP_SIGNAL, self._stop_for_good)
        signal.signal(signal.SIGUSR2, self._time_is_up)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, STOP_SIGNAL, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)

    def _leave_the_nodes(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm sends it several times
        self.told = True
        raise KeyboardInterrupt

    def _stop_for_good(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True
        os.kill(os.getpid(), signal.SIGTERM)

    def _time_is_up(self, _number: int, _frame: FrameType | None) -> None:
        if self.told:
            return
        self.told = True
        self._stop_within(self.cluster.signal_delay_s - REQUEUE_S)

    def _lost(self, who: str) -> None:
        if self.lost:
            return
        self.lost = who
        self._stop_within(self.cluster.signal_delay_s)

    def _stop_within(self, seconds: float) -> None:
        """The step in hand is finished and saved; what hangs is left as it is."""
        self.backstop = threading.Timer(seconds, self._leave)
        self.backstop.daemon = True
        self.backstop.start()
        os.kill(os.getpid(), signal.SIGTERM)

    def _leave(self) -> None:
        status = read_status(self.task.folder) or Status("running")
        os._exit(0 if status.state == "finished" else self._end(status))

    def _end(self, status: Status) -> int:
        """Writes down how the job ends and gives the exit code of the task."""
        if self.lost:
            return self._write("failed", f"{self.lost}; {status.reason or 'the run hung'}")
        wanted_back = self.told or status.state == "interrupted"
        if self.stopped or status.state == "failed" or not wanted_back:
            return 1
        attempts = int(os.environ.get(RESTARTS, "0"))
        if attempts >= self.cluster.max_requeues:
            return self._write(
                "failed",
                f"Slurm job {self.here.job_id} was told to end and has been requeued "
                f"cluster.max_requeues={attempts} times already; the same command goes on",
            )
        job = str(self.here.job_id)
        self._write("queued", f"Slurm job {job} was told to end; it is back in the queue")
        (self.task.folder / JOB_FOLDER / f"{job}{REQUEUE_MARK}").touch()
        return 0

    def _write(self, state: State, reason: str) -> int:
        with changing(self.task.folder) as found:
            status = known(found, Status("queued", overrides=self.task.overrides))
            ended = status if status.over else status.ended("interrupted")
            write_status(self.task.folder, replace(ended, state=state, reason=reason))
        return 1
