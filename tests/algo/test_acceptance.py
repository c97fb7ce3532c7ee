"""Acceptance arithmetic on counts worked by hand."""

import pytest

from specrl.algo.acceptance import (
    acceptance_length,
    position_rates,
    spec_metrics,
    tokens_per_step,
    total,
)
from specrl.types import SpecStats

SHORT = SpecStats(2, (2, 2, 2), (2, 1, 0), num_decode_steps=2, num_tokens=5)
LONG = SpecStats(8, (8, 8, 6), (4, 2, 1), num_decode_steps=10, num_tokens=17)


def test_acceptance_length_counts_the_bonus_token() -> None:
    assert acceptance_length(SHORT) == 1 + 3 / 2


def test_a_batch_is_weighted_by_its_drafts_not_by_its_rollouts() -> None:
    assert acceptance_length(total([SHORT, LONG])) == 1 + 10 / 10
    mean_of_ratios = (2.5 + 1.875) / 2
    assert acceptance_length(total([SHORT, LONG])) != mean_of_ratios


def test_rollouts_without_drafts_do_not_count_as_zero() -> None:
    idle = SpecStats(0, (), (), num_decode_steps=4, num_tokens=4)
    assert acceptance_length(total([SHORT, idle])) == acceptance_length(SHORT)
    assert acceptance_length(idle) is None


def test_a_batch_without_a_draft_still_says_its_tokens_per_step() -> None:
    idle = SpecStats(0, (0, 0), (0, 0), num_decode_steps=4, num_tokens=4)
    assert spec_metrics([idle, idle]) == {
        "spec/tokens_per_step": 1.0,
        "spec/num_drafts": 0.0,
        "spec/num_decode_steps": 8.0,
    }


def test_without_speculation_there_are_no_metrics() -> None:
    assert spec_metrics([None, None]) == {}


def test_an_undrafted_rollout_lowers_tokens_per_step_but_not_acceptance() -> None:
    idle = SpecStats(0, (0, 0, 0), (0, 0, 0), num_decode_steps=4, num_tokens=4)
    metrics = spec_metrics([SHORT, idle])
    assert metrics["spec/tokens_per_step"] == (5 + 4) / (2 + 4)
    assert metrics["spec/num_decode_steps"] == 6
    assert metrics["spec/acceptance_length"] == spec_metrics([SHORT])["spec/acceptance_length"]
    assert metrics["spec/num_drafts"] == SHORT.num_drafts


def test_tokens_per_step_counts_steps_without_a_draft() -> None:
    assert tokens_per_step(total([SHORT, LONG])) == 22 / 12


def test_every_position_has_its_own_denominator() -> None:
    assert position_rates(total([SHORT, LONG])) == [
        (10, 6, 0.6),
        (10, 3, 0.3),
        (8, 1, 0.125),
    ]


def test_totals_of_different_draft_lengths_line_up() -> None:
    longer = SpecStats(1, (1, 1, 1, 1), (1, 1, 1, 1), 1, 5)
    assert total([SHORT, longer]).num_draft_tokens == (3, 3, 3, 1)


def test_metrics_carry_rates_with_denominators() -> None:
    metrics = spec_metrics([SHORT, None, LONG])
    assert metrics["spec/acceptance_length"] == pytest.approx(2.0)
    assert metrics["spec/acceptance_rate_pos_2"] == 0.125
    assert metrics["spec/drafted_pos_2"] == 8
