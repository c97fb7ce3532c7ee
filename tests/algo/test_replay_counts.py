"""Expected speculation counts of a response, against hand-worked cases and simulation."""

import numpy as np
import pytest

from specrl.algo.acceptance import total
from specrl.algo.replay import expected_counts
from specrl.rollout.spec_counts import cut_steps, spec_stats


def test_a_draft_that_is_never_kept_costs_a_step_per_token():
    counts = expected_counts([np.zeros((5, 3))], 3)
    assert counts.num_drafts == 4  # starts after tokens 0..3
    assert counts.num_draft_tokens == (4, 4, 4)
    assert counts.num_accepted_tokens == (0, 0, 0)
    assert counts.num_decode_steps == 5
    assert counts.num_tokens == 5
    assert counts.acceptance_length == 1.0


def test_a_perfect_draft_is_cut_at_the_end_of_the_response():
    # 7 tokens, k=2: after token 0 three, after token 3 three: done. With 6: the second is cut to 2.
    whole = expected_counts([np.ones((7, 2))], 2)
    assert (whole.num_drafts, whole.num_draft_tokens) == (2, (2, 2))
    assert whole.acceptance_length == 3.0
    cut = expected_counts([np.ones((5, 2))], 2)
    assert (cut.num_drafts, cut.num_draft_tokens) == (2, (2, 1))
    assert cut.num_accepted_tokens == (2, 1)


def test_a_draft_rejected_before_the_end_counts_all_its_tokens():
    # Two tokens: one draft of 3. Kept (1/4): cut to one token. Rejected: three drafted, none kept.
    counts = expected_counts([np.full((2, 3), 0.25)], 3)
    assert counts.num_drafts == 1
    assert counts.num_draft_tokens == (1.0, 0.75, 0.75)
    assert counts.num_accepted_tokens == (0.25, 0.0, 0.0)


def test_two_kept_halves_by_hand():
    # 4 tokens, k=1, always 1/2. Starts: after 0: 1; after 1: 1/2; after 2: 1/2 + 1/4.
    counts = expected_counts([np.full((4, 1), 0.5)], 1)
    assert counts.num_drafts == 2.25
    assert counts.num_accepted_tokens == (1.125,)


def test_responses_of_one_token_draft_nothing():
    counts = expected_counts([np.ones((1, 2))], 2)
    assert counts.num_drafts == 0
    assert counts.acceptance_length is None
    assert counts.position_rates == (0.0, 0.0)
    assert expected_counts([], 2).num_tokens == 0


def test_responses_are_pooled_by_their_counts_and_not_by_their_means():
    one, two = np.ones((9, 2)), np.zeros((3, 2))
    pooled = expected_counts([one, two], 2)
    parts = [expected_counts([matrix], 2) for matrix in (one, two)]
    assert pooled.num_drafts == sum(part.num_drafts for part in parts)
    assert pooled.num_draft_tokens == tuple(
        np.sum([part.num_draft_tokens for part in parts], axis=0)
    )
    assert pooled.acceptance_length == pytest.approx(1 + sum(pooled.num_accepted_tokens) / 5)


def simulated(kept, k, rng):
    """The engine's loop with its own counting rules, kept runs drawn token by token."""
    length = len(kept)
    steps, start = [(0, 0)], 0
    while start < length - 1:
        run = 0
        while run < k and start + 1 + run < length and rng.random() < kept[start, run]:
            run += 1
        steps.append((k, run))
        start += run + 1
    return spec_stats(cut_steps(steps, length), length, k)


def test_expected_counts_are_the_means_of_simulated_ones():
    rng = np.random.default_rng(7)
    k, runs = 3, 4000
    kept = [rng.random((length, k)) ** 0.3 for length in (1, 2, 3, 9)]
    expected = expected_counts(kept, k)
    stats = total(simulated(matrix, k, rng) for _ in range(runs) for matrix in kept)
    assert stats.num_drafts / runs == pytest.approx(expected.num_drafts, rel=0.02)
    assert np.array(stats.num_draft_tokens) / runs == pytest.approx(
        np.array(expected.num_draft_tokens), rel=0.03
    )
    assert np.array(stats.num_accepted_tokens) / runs == pytest.approx(
        np.array(expected.num_accepted_tokens), rel=0.03
    )
    assert stats.num_decode_steps / runs == pytest.approx(expected.num_decode_steps, rel=0.02)
