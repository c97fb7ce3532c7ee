"""The health gate's verdicts on counts worked by hand."""

import pytest

from specrl.algo.health import DraftHealth, judge
from specrl.config.drafter import DraftHealthConfig

CONFIG = DraftHealthConfig(floor=0.1, window=3, drop=0.5, min_drafts=100)


def faults(
    health: DraftHealth, calls: list[tuple[int, int]], sampled: bool = True
) -> list[str | None]:
    found = []
    for drafted, accepted in calls:
        health, fault, _ = judge(health, drafted, accepted, CONFIG, sampled)
        found.append(fault)
    return found


def test_a_steady_draft_is_never_at_fault() -> None:
    assert faults(DraftHealth(), [(500, 200), (500, 190), (500, 210), (500, 170)]) == [None] * 4


def test_a_random_draft_may_stay_below_the_floor_that_it_never_reached() -> None:
    assert faults(DraftHealth(), [(500, 0), (500, 5), (500, 20)]) == [None] * 3


def test_a_random_draft_that_rose_above_the_floor_is_held_to_it() -> None:
    assert faults(DraftHealth(), [(500, 20), (500, 100)]) == [None] * 2
    fault = faults(DraftHealth(), [(500, 20), (500, 100), (500, 40)])[2]
    assert fault is not None
    assert "0.080 over 500 drafts" in fault
    assert "drafter.health.floor=0.1" in fault


def test_a_draft_whose_init_promised_more_than_the_floor_is_held_to_it_at_once() -> None:
    fault = faults(DraftHealth.known(CONFIG, expected=0.4), [(500, 10)])[0]
    assert fault is not None
    assert "floor" in fault
    assert faults(DraftHealth.known(CONFIG, expected=0.05), [(500, 15)]) == [None]


def test_less_than_half_of_what_the_init_measured_is_a_fault_above_the_floor_too() -> None:
    fault = faults(DraftHealth.known(CONFIG, expected=0.45), [(500, 75)])[0]
    assert fault is not None
    assert "0.450 that its init measured" in fault


def test_once_there_are_calls_they_are_the_measure_not_the_init() -> None:
    slow = DraftHealth.known(CONFIG, expected=0.45)
    assert faults(slow, [(500, 130), (500, 110), (500, 100), (500, 90)]) == [None] * 4


def test_a_sudden_drop_is_a_fault_and_a_slow_one_is_not() -> None:
    assert faults(DraftHealth(), [(500, 300), (500, 250), (500, 210), (500, 180)]) == [None] * 4
    fault = faults(DraftHealth(), [(500, 300), (500, 300), (500, 140)])[2]
    assert fault is not None
    assert "0.5 times the 0.600 of its last 2 calls" in fault


def test_collapsed_calls_do_not_become_the_measure_of_the_next_ones() -> None:
    found = faults(DraftHealth(), [(500, 300), (500, 60), (500, 60), (500, 60), (500, 280)])
    assert [fault is None for fault in found] == [True, False, False, False, True]


def test_few_drafts_are_added_up_before_a_verdict() -> None:
    health = DraftHealth.known(CONFIG, expected=0.5)
    for _ in range(3):
        health, fault, judged = judge(health, 30, 0, CONFIG, True)
        assert (fault, judged) == (None, False)
    _, fault, judged = judge(health, 30, 0, CONFIG, True)
    assert judged
    assert fault is not None
    assert "over 120 drafts" in fault


def test_accepting_everything_is_named_when_the_policy_is_sampled() -> None:
    fault = faults(DraftHealth(), [(500, 500)])[0]
    assert fault is not None
    assert "eagle head given as eagle3" in fault
    assert faults(DraftHealth(), [(500, 500)], sampled=False) == [None]
    assert faults(DraftHealth(), [(500, 499)]) == [None]


def test_a_resumed_run_judges_by_its_history_of_healthy_steps() -> None:
    health = DraftHealth.known(CONFIG, history=[0.9, 0.6, 0.02, 0.6, 0.6])
    assert health.window == (0.6, 0.6, 0.6)
    assert faults(health, [(500, 100)])[0] is not None


def test_a_collapse_before_a_resume_is_not_what_is_usual_after_it() -> None:
    health = DraftHealth.known(CONFIG, history=[0.6, 0.6, 0.2, 0.2, 0.2])
    assert health.window == (0.6, 0.6)
    assert faults(health, [(500, 100)])[0] is not None


@pytest.mark.parametrize("off", [{"floor": 0.0}, {"drop": 0.0}])
def test_each_test_can_be_switched_off(off: dict[str, float]) -> None:
    values = {"floor": 0.1, "drop": 0.5, "min_drafts": 100} | off
    config = DraftHealthConfig(**values)
    health = DraftHealth.known(config, history=[0.6])
    _, fault, _ = judge(health, 500, 10, config, True)
    assert fault is not None
    assert next(iter(off)) not in fault
