"""When a learned draft no longer fits its policy, by what is accepted at position 0."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specrl.config.drafter import DraftHealthConfig


@dataclass(frozen=True)
class DraftHealth:
    """What a draft has shown so far; each call gives a new record.

    `window` holds the acceptance of the newest calls that were healthy, oldest first: a collapsed
    call never becomes the measure of the next one. `expected` is what the draft's init promised,
    None without a promise. `drafted` and `accepted` wait for a verdict.
    """

    window: tuple[float, ...] = ()
    expected: float | None = None
    drafted: int = 0
    accepted: int = 0

    @classmethod
    def known(
        cls, config: DraftHealthConfig, expected: float | None = None, history: Sequence[float] = ()
    ) -> "DraftHealth":
        """`history` is the acceptance per step before a resume, oldest first; empty re-learns."""
        window: tuple[float, ...] = ()
        for rate in history:
            usual = float(np.mean(window)) if window else 0.0
            if rate >= max(config.floor, config.drop * usual):
                window = (*window, rate)[-config.window :]
        return cls(window=window, expected=expected)


def judge(
    health: DraftHealth, drafted: int, accepted: int, config: DraftHealthConfig, sampled: bool
) -> tuple[DraftHealth, str | None, bool]:
    """The record with one more call's counts, the fault found, and whether a verdict was reached.

    Calls with fewer than `min_drafts` drafts between them are added up without a verdict. `sampled`
    says that the policy is sampled, so that accepting everything is a sign, not a success.
    """
    drafted, accepted = health.drafted + drafted, health.accepted + accepted
    if drafted < config.min_drafts:
        return replace(health, drafted=drafted, accepted=accepted), None, False
    fault = _fault(health, drafted, accepted, config, sampled)
    window = health.window
    if fault is None:
        window = (*window, accepted / drafted)[-config.window :]
    return replace(health, window=window, drafted=0, accepted=0), fault, True


def _fault(
    health: DraftHealth, drafted: int, accepted: int, config: DraftHealthConfig, sampled: bool
) -> str | None:
    rate = accepted / drafted
    seen = f"acceptance at position 0 is {rate:.3f} over {drafted} drafts"
    if sampled and accepted == drafted:
        return (
            f"{seen}, exactly 1 although the policy is sampled: the draft is the policy itself, it "
            "is not of the kind it is served as (an eagle head given as eagle3), or the policy has "
            "become deterministic"
        )
    if rate < config.floor and _was_above(health, config.floor):
        return (
            f"{seen}, below drafter.health.floor={config.floor}: as if its weights, its vocabulary "
            "map or its auxiliary layers were another draft's"
        )
    if health.window:
        usual, whose = float(np.mean(health.window)), f"of its last {len(health.window)} calls"
    elif health.expected is not None:
        usual, whose = health.expected, "that its init measured on held-out prompts"
    else:
        return None
    if rate < config.drop * usual:
        return (
            f"{seen}, less than drafter.health.drop={config.drop} times the {usual:.3f} {whose}: "
            "it was swapped, damaged, or left behind by its policy"
        )
    return None


def _was_above(health: DraftHealth, floor: float) -> bool:
    promised = health.expected is not None and health.expected >= floor
    return promised or any(rate >= floor for rate in health.window)
