"""Ctrl-C and SIGTERM finish the step in hand; a second one stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Set once a signal asked the run to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def interruption(on_request: Callable[[str], None]) -> Iterator[Interruption]:
    """Catches the first SIGINT or SIGTERM; the second raises KeyboardInterrupt.

    `on_request` is told the signal's name. Outside the main thread signals are left alone.
    """
    state = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if state.requested:
            raise KeyboardInterrupt
        state.requested = True
        on_request(signal.Signals(number).name)

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield state
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
