"""Speculation counts of one response from the counts of its engine steps."""

from collections.abc import Sequence

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
    return SpecStats(
        num_drafts=sum(drafted > 0 for drafted, _ in steps),
        num_draft_tokens=tuple(sum(drafted > i for drafted, _ in steps) for i in range(k)),
        num_accepted_tokens=tuple(sum(accepted > i for _, accepted in steps) for i in range(k)),
        num_decode_steps=len(steps),
        num_tokens=num_tokens,
    )
