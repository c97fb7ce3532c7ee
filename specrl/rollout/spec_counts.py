"""Speculation counts of one response from vLLM's per-step counts."""

from collections.abc import Sequence

from specrl.types import SpecStats


def spec_stats(
    drafted: Sequence[int],
    accepted: Sequence[int],
    num_decode_steps: int,
    num_tokens: int,
    k: int,
) -> SpecStats:
    """Counts of one response; those of drafts are 0 where no draft step ran.

    `drafted[j]` and `accepted[j]` are draft tokens proposed and accepted in the response's j-th
    verification step, before the response was cut at max_tokens or a stop. Every step yields
    accepted + 1 tokens, so `num_decode_steps + sum(accepted) - num_tokens` of the last step were
    cut off: its counts stop at the last token kept.
    """
    steps = [(d, a) for d, a in zip(drafted, accepted, strict=True) if d > 0]
    overshoot = num_decode_steps + sum(a for _, a in steps) - num_tokens
    assert overshoot >= 0, f"{num_tokens} tokens from {num_decode_steps} steps {steps}"
    if overshoot:
        assert steps, f"{num_tokens} tokens from {num_decode_steps} steps without a draft"
        last = steps[-1][1] + 1 - overshoot
        assert last >= 1, f"the last step {steps[-1]} kept {last} tokens"
        steps[-1] = (last, last)
    return SpecStats(
        num_drafts=len(steps),
        num_draft_tokens=tuple(sum(d > i for d, _ in steps) for i in range(k)),
        num_accepted_tokens=tuple(sum(a > i for _, a in steps) for i in range(k)),
        num_decode_steps=num_decode_steps,
        num_tokens=num_tokens,
    )
