"""Speculation counts of one response, worked by hand."""

import pytest

from specrl.rollout.spec_counts import cut_steps, spec_stats
from specrl.types import SpecStats


def test_counts_per_position_add_up_over_steps() -> None:
    # First token from the prefill, then 3+1, 0+1 and 1+1 tokens, one step without a draft.
    steps = cut_steps([(0, 0), (3, 3), (3, 0), (0, 0), (2, 1)], num_tokens=9)
    assert steps == ((0, 0), (3, 3), (3, 0), (0, 0), (2, 1))
    assert spec_stats(steps, num_tokens=9, k=3) == SpecStats(
        num_drafts=3,
        num_draft_tokens=(3, 3, 2),
        num_accepted_tokens=(2, 1, 1),
        num_decode_steps=5,
        num_tokens=9,
    )


@pytest.mark.parametrize(
    ("num_tokens", "last"),
    [(6, 3), (5, 3), (4, 2), (3, 1)],
    ids=["nothing cut", "bonus token cut", "two cut", "three cut"],
)
def test_a_cut_last_step_counts_up_to_the_last_token_kept(num_tokens: int, last: int) -> None:
    # Prefill token, a rejected draft (1 token), then all of 3 drafts accepted (4 tokens).
    steps = cut_steps([(0, 0), (3, 0), (3, 3)], num_tokens)
    assert steps == ((0, 0), (3, 0), (last, last))
    stats = spec_stats(steps, num_tokens, k=3)
    assert stats.num_accepted_tokens == tuple(int(last > i) for i in range(3))
    assert stats.num_draft_tokens == tuple(1 + (last > i) for i in range(3))


def test_only_the_last_step_is_cut() -> None:
    assert cut_steps([(0, 0), (2, 2), (2, 2)], num_tokens=5) == ((0, 0), (2, 2), (1, 1))


def test_a_response_without_a_draft_counts_its_steps() -> None:
    stats = spec_stats(cut_steps([(0, 0)] * 4, num_tokens=4), num_tokens=4, k=3)
    assert stats == SpecStats(0, (0, 0, 0), (0, 0, 0), num_decode_steps=4, num_tokens=4)


def test_more_tokens_than_steps_can_yield_are_our_own_bug() -> None:
    with pytest.raises(AssertionError, match="7 tokens from 3 steps"):
        cut_steps([(0, 0), (3, 0), (3, 3)], num_tokens=7)
    with pytest.raises(AssertionError, match="kept 0 tokens"):
        cut_steps([(0, 0)] * 4, num_tokens=3)
