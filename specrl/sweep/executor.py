"""What starts the points of a sweep somewhere: the seam between a sweep and submitit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specrl.sweep.point import PointTask
from specrl.sweep.status import Status


@dataclass(frozen=True)
class JobEnd:
    """How a job ended, as its scheduler or the kernel tells it.

    `reason` is empty when the process ended by itself: its status file has the rest.
    """

    reason: str = ""


class Job(Protocol):
    """One submitted point.

    `log` is the file that its output goes to, `id` the scheduler's; None without one.
    """

    @property
    def id(self) -> str | None: ...

    @property
    def log(self) -> Path: ...

    def poll(self) -> JobEnd | None:
        """None while it waits or runs."""
        ...

    def stop(self) -> None:
        """Asks it to save and end; a second call stops it at once."""
        ...

    def kill(self) -> None:
        """Ends it and whatever it started, now."""
        ...


class Executor(Protocol):
    """Where jobs run. `at_once` is how many may be submitted together; None: all of them."""

    @property
    def at_once(self) -> int | None: ...

    def check(self, task: PointTask) -> None:
        """Raises `UserError` for a point that cannot run here."""
        ...

    def submit(self, tasks: Sequence[PointTask]) -> list[Job]:
        """Starts or queues one job for each task; each calls `specrl.sweep.point.run_point`."""
        ...

    def alive(self, status: Status) -> bool | None:
        """Whether the job that another launcher submitted still exists; None: not known here."""
        ...
