"""What Slurm says of jobs; squeue is asked, not sacct."""

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from specrl.sweep.status import State, Status

COMMAND_S = 60.0  # squeue and scancel answer within it, or count as not answering
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)


@dataclass(frozen=True)
class Entry:
    """What squeue says of a job; GONE once Slurm has forgotten it."""

    state: str
    reason: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED or self.state == "GONE"

    def words(self, job: str) -> str:
        """How the job ended, in Slurm's words."""
        why = f" ({self.reason})" if self.reason not in {"", "None"} else ""
        return f"Slurm job {job} ended as {self.state}{why}"


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


def told_by_slurm(status: Status, queue: Queue) -> Status:
    """This status, where Slurm knows more than who wrote it.

    A job that was killed with its nodes may wait in the queue again, and one that was cancelled
    could not say so. `queue` is not asked about points without a job, or that are finished.
    """
    job = status.job or ""
    if status.state in ("finished", "damaged") or not job.isdigit():
        return status
    entry = queue.entry(job)
    if entry is None:
        return status
    if entry.state == "PENDING" and status.state != "queued":
        why = f"; before: {status.reason}" if status.reason else ""
        return replace(status, state="queued", reason=f"Slurm job {job} is back in the queue{why}")
    if entry.state in ENDED and not status.over:
        state: State = "failed" if status.state == "running" else status.state
        return replace(status, state=state, reason=f"{entry.words(job)}; the same command goes on")
    return status


def _listed() -> dict[str, Entry] | None:
    said = ask("squeue", "--noheader", "--me", "--states=all", "--format=%A|%T|%r")
    if said is None:
        return None
    fields = [line.split("|", 2) for line in said.splitlines() if line.count("|") >= 2]
    return {job.strip(): Entry(state.strip(), reason.strip()) for job, state, reason in fields}


def ask(*command: str) -> str | None:
    """What a command of Slurm prints; None when it fails or does not answer."""
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
