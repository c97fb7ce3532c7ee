"""The same work on many items, on as many processes as this one has cores."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, TypeVar

from specrl.errors import RunError

T = TypeVar("T")
R = TypeVar("R")

FEWEST: Final = 4
"""Starting processes takes longer than fewer items do."""

_shared: list[Any] = []
"""[function, items] while processes start: a fork inherits them, so that neither is pickled."""


def in_processes(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`function` of each item, in order; results are pickled, arguments are not.

    One process does it all off Linux (others cannot fork safely), on one core and for a few items.
    What `function` raises is raised; a process that is killed raises `RunError`.
    """
    workers = min(_cores(), len(items))
    if workers < 2 or len(items) < FEWEST or _shared:
        return [function(item) for item in items]
    _shared[:] = function, items
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, context, _leave_interrupts_to_the_parent) as pool:
            return list(pool.map(_call, range(len(items))))
    except BrokenProcessPool as error:
        raise RunError(
            "a process of the analysis was killed; it may need more memory, or fewer runs at once "
            "(--experiment, --since)"
        ) from error
    finally:
        _shared.clear()


def _call(number: int) -> Any:
    function, items = _shared
    return function(items[number])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
