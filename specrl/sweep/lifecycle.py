"""A sweep from its first point to its last, whatever becomes of each."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specrl.interruption import SAME_KEY_PRESS_S, Interruption, interruption
from specrl.process import this_process
from specrl.sweep.claim import claim, is_done
from specrl.sweep.executor import Executor, Job, JobEnd
from specrl.sweep.point import PointTask
from specrl.sweep.status import (
    HEARTBEAT_S,
    Status,
    beat,
    changing,
    is_alive,
    known,
    read_status,
    write_status,
)
from specrl.sweep.tail import Tail

POLL_S = 0.2
FOLLOW_S = 2.0
SUBMITIT_LINE = "submitit INFO"


@dataclass(frozen=True)
class Patience:
    """Seconds that a process may outlive its run, and a second Ctrl-C, before it is killed."""

    linger_s: float = 60.0
    kill_after_s: float = 60.0


@dataclass(frozen=True)
class _Submitted:
    task: PointTask
    job: Job
    output: Tail
    begun_s: float


class Sweep:
    """Points that differ in their folder, through one executor.

    A point that is done already is left alone; one that another living launcher queued or runs is
    waited for and, should that launcher die, taken over. `say` gets a line for the reader.
    """

    def __init__(
        self,
        tasks: Sequence[PointTask],
        executor: Executor,
        say: Callable[[str], None],
        patience: Patience = Patience(),
    ) -> None:
        self._patience = patience
        self._tasks = list(tasks)
        self._executor = executor
        self._say = say
        self._me = this_process()
        self._since_s = time.time()
        self._own: deque[PointTask] = deque()
        self._theirs: list[PointTask] = []
        self._jobs: list[_Submitted] = []
        self._stopping = False
        self._beaten_s = self._followed_s = time.monotonic()

    def run(self) -> str:
        """The signal that asked it to stop, "" when every point has ended.

        The first signal lets the running points save and end; KeyboardInterrupt after a second.
        """
        with interruption() as stop:
            self._sort(self._tasks)
            try:
                self._until_over(stop)
            except KeyboardInterrupt:
                self._end_now()
                raise
            return stop.requested

    def _until_over(self, stop: Interruption) -> None:
        while self._jobs or self._own or self._theirs:
            if stop.requested and not self._stopping:
                self._stop()
            self._turn()
            time.sleep(POLL_S)

    def _sort(self, tasks: Sequence[PointTask]) -> None:
        """Claims what may be claimed, so that every point has its status from the start."""
        for task in tasks:
            found = read_status(task.folder)
            if found is not None and found.damaged:
                self._say(f"{self._label(task)}: {found.reason}")
            match claim(task, self._me, self._since_s, self._executor.alive):
                case "ours":
                    self._own.append(task)
                case "theirs":
                    self._theirs.append(task)
                    self._say(f"{self._label(task)}: {self._holder(task)} has it; waiting for that")
                case "done":
                    self._say(f"{self._label(task)}: done already")

    def _stop(self) -> None:
        """Running points save and end; those that wait stay queued."""
        self._stopping = True
        self._own.clear()
        self._theirs.clear()
        for submitted in self._jobs:
            submitted.job.stop()

    def _turn(self) -> None:
        self._watch()
        self._follow()
        self._fill()
        self._beat()

    def _fill(self) -> None:
        limit = self._executor.at_once
        room = len(self._own) if limit is None else limit - len(self._jobs)
        batch: list[PointTask] = []
        while self._own and len(batch) < room:
            task = self._own.popleft()
            # A run of its own may have taken the point while it was queued here.
            if claim(task, self._me, self._since_s, self._executor.alive) == "ours":
                batch.append(task)
            else:
                self._theirs.append(task)
        if batch:
            self._submit(batch)

    def _submit(self, batch: Sequence[PointTask]) -> None:
        for task, job in zip(batch, self._executor.submit(batch), strict=True):
            self._say(f"{self._label(task)}: {f'job {job.id}, ' if job.id else ''}log {job.log}")
            self._jobs.append(_Submitted(task, job, Tail(job.log), time.time()))
            with changing(task.folder) as found:
                status = known(found, self._queued(task))
                write_status(task.folder, replace(status, job=job.id, log=str(job.log)))

    def _watch(self) -> None:
        for submitted in list(self._jobs):
            end = submitted.job.poll()
            self._show(submitted)
            if end is not None:
                self._jobs.remove(submitted)
                self._conclude(submitted, end)
            elif self._lingers(submitted):
                submitted.job.kill()

    def _lingers(self, submitted: _Submitted) -> bool:
        """Whether the run is over and its process will not end: a library's exit may hang."""
        if self._executor.at_once is None:  # a cluster ends its jobs itself
            return False
        ended_s = (read_status(submitted.task.folder) or Status("queued")).ended_s or 0.0
        return ended_s >= submitted.begun_s and time.time() - ended_s > self._patience.linger_s

    def _show(self, submitted: _Submitted) -> None:
        if self._executor.at_once is None:  # a cluster's jobs have too much to say at once
            return
        prefix = "" if self._executor.at_once == 1 else f"[{self._number(submitted.task)}] "
        for line in submitted.output.lines():
            if not line.startswith(SUBMITIT_LINE):
                self._say(f"{prefix}{line}")

    def _conclude(self, submitted: _Submitted, end: JobEnd) -> None:
        """A job that ended without writing how gets its end written here."""
        task = submitted.task
        with changing(task.folder) as found:
            status = found or self._queued(task)
            if status.over or (status.state == "queued" and self._stopping):
                return
            own_job = submitted.job.id is not None and status.job == submitted.job.id
            own = own_job or status.process == self._me
            if own or not is_alive(task.folder, status):
                fault = status.reason if status.damaged else "its process ended without a word"
                reason = end.reason or fault
                write_status(task.folder, status.ended("failed", reason))
                return
        self._theirs.append(task)  # another process was quicker to hold the run folder

    def _follow(self) -> None:
        """Of others' points: those that ended so are done, those left behind are taken over."""
        if time.monotonic() - self._followed_s < FOLLOW_S:
            return
        self._followed_s = time.monotonic()
        theirs, self._theirs = self._theirs, []
        for task in theirs:
            status = read_status(task.folder)
            ended = status is not None and (
                is_done(task, status, self._since_s)
                or (status.state == "failed" and (status.ended_s or 0.0) >= self._since_s)
            )
            if not ended:
                self._take_over(task)

    def _take_over(self, task: PointTask) -> None:
        outcome = claim(task, self._me, self._since_s, self._executor.alive)
        if outcome == "theirs":
            self._theirs.append(task)
        elif outcome == "ours":
            self._say(f"{self._label(task)}: left behind by its launcher; going on with it")
            self._own.append(task)

    def _beat(self) -> None:
        if time.monotonic() - self._beaten_s < HEARTBEAT_S:
            return
        self._beaten_s = time.monotonic()
        for task in self._own:
            beat(task.folder)

    def _end_now(self) -> None:
        """The second signal goes to the points too; what is then still there is killed."""
        time.sleep(SAME_KEY_PRESS_S)  # theirs came a moment after ours
        for submitted in self._jobs:
            submitted.job.stop()
        deadline_s = time.monotonic() + self._patience.kill_after_s
        while any(s.job.poll() is None for s in self._jobs) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        for submitted in self._jobs:
            if submitted.job.poll() is None:
                submitted.job.kill()

    def _queued(self, task: PointTask) -> Status:
        """What the status was before somebody removed or damaged it."""
        return Status("queued", process=self._me, overrides=task.overrides)

    def _holder(self, task: PointTask) -> str:
        status = read_status(task.folder)
        return str(status.process) if status else "another process"

    def _number(self, task: PointTask) -> str:
        return f"{self._tasks.index(task) + 1}/{len(self._tasks)}"

    def _label(self, task: PointTask) -> str:
        return f"point {self._number(task)} ({' '.join(task.overrides)})"
