"""Speculation counts and the figures made of them; every mean is token-weighted."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from specrl.types import SpecStats


def total(stats: Iterable[SpecStats]) -> SpecStats:
    """The counts of several rollouts added up; positions that a draft never reached count as 0."""
    parts = list(stats)
    return SpecStats(
        num_drafts=sum(s.num_drafts for s in parts),
        num_draft_tokens=_columns([s.num_draft_tokens for s in parts]),
        num_accepted_tokens=_columns([s.num_accepted_tokens for s in parts]),
        num_decode_steps=sum(s.num_decode_steps for s in parts),
        num_tokens=sum(s.num_tokens for s in parts),
    )


def acceptance_length(stats: SpecStats) -> float | None:
    """Mean tokens per verification step, the bonus token included (1..k+1); None without drafts."""
    if stats.num_drafts == 0:
        return None
    return 1.0 + sum(stats.num_accepted_tokens) / stats.num_drafts


def tokens_per_step(stats: SpecStats) -> float | None:
    """Mean tokens per engine step, steps without a draft included; None without steps."""
    if stats.num_decode_steps == 0:
        return None
    return stats.num_tokens / stats.num_decode_steps


def position_rates(stats: SpecStats) -> list[tuple[int, int, float]]:
    """(drafted, accepted, rate) per draft position; positions never drafted are left out."""
    pairs = zip(stats.num_draft_tokens, stats.num_accepted_tokens, strict=True)
    return [(drafted, accepted, accepted / drafted) for drafted, accepted in pairs if drafted]


def spec_metrics(stats: Iterable[SpecStats | None]) -> dict[str, float]:
    """`spec/*` metrics of a batch of rollouts; empty when speculation was off.

    Acceptance figures are left out when nothing was drafted.
    """
    counts = total(s for s in stats if s is not None)
    per_step = tokens_per_step(counts)
    if per_step is None:
        return {}
    metrics = {
        "spec/tokens_per_step": per_step,
        "spec/num_drafts": float(counts.num_drafts),
        "spec/num_decode_steps": float(counts.num_decode_steps),
    }
    length = acceptance_length(counts)
    if length is not None:
        metrics["spec/acceptance_length"] = length
    for position, (drafted, _, rate) in enumerate(position_rates(counts)):
        metrics[f"spec/acceptance_rate_pos_{position}"] = rate
        metrics[f"spec/drafted_pos_{position}"] = float(drafted)
    return metrics


def _columns(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))
