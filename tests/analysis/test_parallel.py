"""Work spread over processes comes back in order, and what goes wrong in one is told."""

import os

import pytest

from analysis.parallel import FEWEST, in_processes
from specrl.errors import RunError

ITEMS = range(3 * FEWEST)


def test_results_come_in_the_order_of_the_items() -> None:
    offset = 10
    assert in_processes(lambda item: item + offset, ITEMS) == [item + 10 for item in ITEMS]
    assert in_processes(lambda item: item, []) == []


def test_work_within_work_stays_in_its_process() -> None:
    def outer(_: int) -> bool:
        return set(in_processes(lambda _: os.getpid(), ITEMS)) == {os.getpid()}

    assert all(in_processes(outer, ITEMS))


def test_an_error_is_raised_and_the_next_call_works() -> None:
    with pytest.raises(ZeroDivisionError):
        in_processes(lambda item: 1 // (item - 5), ITEMS)
    assert in_processes(abs, ITEMS) == list(ITEMS)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core uses no processes")
def test_a_killed_process_is_one_line_that_says_what_to_do() -> None:
    with pytest.raises(RunError, match="was killed; it may need more memory"):
        in_processes(lambda _: os._exit(9), ITEMS)
