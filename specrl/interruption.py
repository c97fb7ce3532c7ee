"""Ctrl-C and SIGTERM finish the step in hand; a second Ctrl-C stops at once."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ANNOUNCEMENT = "finishing the step in hand, then saving; Ctrl-C then stops at once"
SAME_KEY_PRESS_S = 0.5  # a held key, or a launcher that passes on what the terminal sent too
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """`requested` is the name of the signal that asked the run to stop; empty before."""

    requested: str = ""


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Catches the first SIGINT or SIGTERM; a SIGINT after it raises KeyboardInterrupt.

    A second SIGTERM means nothing: Slurm sends several, and kills in the end what does not leave.
    The handler writes to the bare file: printing could meet a print that the signal interrupted.
    Outside the main thread signals are left alone.
    """
    state = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    first_s = 0.0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        again = state.requested and time.monotonic() - first_s > SAME_KEY_PRESS_S
        if again and number == signal.SIGINT:
            raise KeyboardInterrupt
        if state.requested:
            return
        first_s = time.monotonic()
        state.requested = signal.Signals(number).name
        with suppress(OSError):
            os.write(2, f"\n{state.requested}: {ANNOUNCEMENT}\n".encode())

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield state
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
