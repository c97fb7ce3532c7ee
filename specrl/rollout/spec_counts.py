"""Speculation counts of one response from the counts of its engine steps."""

from collections.abc import Sequence

import numpy as np

from specrl.types import SpecStats

Steps = tuple[tuple[int, int], ...]


def cut_steps(steps: Sequence[tuple[int, int]], num_tokens: int) -> Steps:
    """(drafted, accepted) per step, those of the last one up to the last of `num_tokens` tokens.

    `steps` are counted before the response was cut at max_tokens or a stop. Every step yields
    accepted + 1 tokens, so what goes beyond `num_tokens` was cut off the last step, which then
    drafted and accepted just the tokens that were left.
    """
    overshoot = len(steps) + sum(accepted for _, accepted in steps) - num_tokens
    assert overshoot >= 0, f"{num_tokens} tokens from {len(steps)} steps {steps}"
    if not overshoot:
        return tuple(steps)
    kept = steps[-1][1] + 1 - overshoot
    assert kept >= 1, f"the last step {steps[-1]} kept {kept} tokens"
    return (*steps[:-1], (kept, kept))


def spec_stats(steps: Steps, num_tokens: int, k: int) -> SpecStats:
    """Counts of one response from `cut_steps`; those of drafts are 0 where no draft ran."""
    # S steps, K draft positions
    steps_S2 = np.array(steps, np.int64).reshape(-1, 2)
    drafted_K, accepted_K = (steps_S2[:, :, None] > np.arange(k)).sum(0).tolist()
    return SpecStats(
        num_drafts=int((steps_S2[:, 0] > 0).sum()),
        num_draft_tokens=tuple(drafted_K),
        num_accepted_tokens=tuple(accepted_K),
        num_decode_steps=len(steps),
        num_tokens=num_tokens,
    )
