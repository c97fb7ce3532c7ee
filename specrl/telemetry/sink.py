"""What the recorder writes to."""

from specrl.protocols import OnProgress
from specrl.types import Metrics


class Sink:
    """One place where metrics go. Every method defaults to doing nothing."""

    @property
    def run_id(self) -> str | None:
        """The tracking server's id of the run; None when this sink has none (yet)."""
        return None

    def start(self) -> None:
        """Called once, before anything else."""

    def log(self, step: int, metrics: Metrics) -> None:
        """One closed step. On the critical path: must return at once."""

    def note(self, message: str) -> None:
        """One line for the reader."""

    def progress(self, label: str) -> OnProgress | None:
        """Where progress of one generate call is shown; None when this sink shows none."""
        del label
        return None

    def finish(self, status: str) -> None:
        """Called once, last. status as in `specrl.protocols.Telemetry.finish`."""
