"""The draft length that decodes fastest, by how many requests run.

From what engine steps cost and what has been accepted: a step of length k costs c(k, batch) and
yields 1 + p * (q_0 + q_0 q_1 + ...) tokens a request, k terms; p is the chance that there is a
draft, q_i that position i is accepted once those before it were.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Schedule = tuple[tuple[int, int], ...]

LEAST_GAIN = 1.03
"""Predicted speedup over drafting nothing from which a length is worth its risk."""

SWITCH_GAIN = 1.02
"""Predicted speedup over the length in force from which another one replaces it."""

KEEP_GAIN = 1.01
"""Predicted speedup below which a length in force is given up."""

KEPT_BY_CALL = 0.9
"""What counts weigh after another call that drafted: acceptance moves with the policy."""

KEPT_BY_PROBE = 0.5
"""The same after a probe, which is rare and so tells of much that has happened since."""

PRIOR_DRAFTS = 10.0
"""Weight of the guess about a position, in drafts; with as many a position counts as known."""

FIRST_GUESS = 0.3
"""The guess for position 0."""

GUESS_DECAY = 0.9
"""The guess for another position: this times the rate of the one before."""


@dataclass(frozen=True)
class StepCosts:
    """Seconds of engine steps; `batches` and `lengths` ascend, lengths from 0.

    `seconds[b][i]` is a step with `batches[b]` requests running and drafts of `lengths[i]` tokens;
    with 0 the drafter still follows the policy, to draft when fewer run. `plain[b]` is a step
    under a schedule that never drafts.
    """

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    plain: tuple[float, ...]

    def table(self, longest: int) -> NDArray[np.float64]:
        """[batches, 0..longest]: interpolated, after least squares under growth with the length.

        A longer draft is measured cheaper by noise only.
        """
        measured = [_growing(np.asarray(row)) for row in self.seconds]
        wanted = np.arange(min(longest, self.lengths[-1]) + 1)
        return np.stack([np.interp(wanted, self.lengths, row) for row in measured])


@dataclass(frozen=True)
class AcceptanceCounts:
    """What drafts have come to, older calls weighing less.

    `drafted` of `steps` decode steps that were to draft had one. `reached[i]` counts drafts whose
    position i was drafted and whose positions before it were accepted, `accepted[i]` those of them
    that kept it.
    """

    steps: float = 0.0
    drafted: float = 0.0
    reached: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()

    def with_call(
        self,
        responses: Sequence[Sequence[tuple[int, int]]],
        scheduled: int | None,
        kept: float = KEPT_BY_CALL,
    ) -> "AcceptanceCounts":
        """The counts after one more call, from each response's (drafted, accepted) per step.

        `scheduled` is the draft length that every step was to have (then a shorter draft is a loss
        and a missing one counts), None where it changed with the batch. The first step of a
        response never drafts and the last one is cut, so both are left out. `kept` is what the
        counts so far weigh from now on, unless the call drafted nothing.
        """
        inner = [step for steps in responses for step in steps[1:-1]]
        pairs = np.asarray(inner, np.int64).reshape(-1, 2)
        drafts = pairs[pairs[:, 0] > 0]
        positions = range(int(drafts[:, 0].max(initial=0)) if scheduled is None else scheduled)
        if not len(drafts) and not scheduled:
            return self
        drafted_up_to = np.full(len(drafts), scheduled) if scheduled else drafts[:, 0]
        reached = [float(np.sum((drafts[:, 1] >= i) & (drafted_up_to > i))) for i in positions]
        accepted = [float(np.sum(drafts[:, 1] > i)) for i in positions]
        counts = replace(
            self,
            reached=_faded(self.reached, reached, kept),
            accepted=_faded(self.accepted, accepted, kept),
        )
        if not scheduled:
            return counts
        return replace(
            counts,
            steps=kept * self.steps + len(pairs),
            drafted=kept * self.drafted + len(drafts),
        )

    @classmethod
    def promised(cls, rates: Sequence[float], drafts: float) -> "AcceptanceCounts":
        """As if `drafts` drafts had been accepted up to each position with these rates.

        `rates[i]` is the chance that positions 0..i are all accepted.
        """
        accepted = tuple(drafts * rate for rate in rates)
        return cls(drafts, drafts, (drafts, *accepted)[: len(accepted)], accepted)

    def tokens_per_step(self, longest: int) -> NDArray[np.float64]:
        """[0..longest]: expected tokens of a request's step, on the cautious side.

        Each rate is a Beta posterior's mean less a standard deviation; unknown positions fall off
        by `GUESS_DECAY`.
        """
        proposed = _cautious(self.drafted, self.steps, 1.0) if self.steps else 1.0
        tokens, kept, guess = [1.0], proposed, FIRST_GUESS
        for position in range(longest):
            reached, accepted = _at(self.reached, position), _at(self.accepted, position)
            rate = _cautious(accepted, reached, guess)
            kept *= rate
            tokens.append(tokens[-1] + kept)
            guess = GUESS_DECAY * rate
        return np.asarray(tokens)

    @property
    def known(self) -> int:
        """Leading positions with enough counts."""
        return next((i for i, n in enumerate(self.reached) if n < PRIOR_DRAFTS), len(self.reached))


@dataclass(frozen=True)
class Choice:
    """`lengths[b]` up to `batches[b]` running requests, and the speedup that predicts.

    `speedup` is that of a whole call. All speedups are over a schedule that never drafts.
    """

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    speedups: tuple[float, ...]
    speedup: float = 1.0

    @property
    def schedule(self) -> Schedule:
        """As `RolloutEngine.set_draft_lengths` takes it; neighbours of one length are merged."""
        pairs = list(zip(self.batches, self.lengths, strict=True))
        following = [*self.lengths[1:], None]
        return tuple(pair for pair, after in zip(pairs, following, strict=True) if pair[1] != after)


def predicted_speedups(
    costs: StepCosts, counts: AcceptanceCounts, longest: int
) -> NDArray[np.float64]:
    """[batches, 0..longest]: tokens per second relative to a schedule that never drafts.

    Entry b is the worse end of (batches[b-1], batches[b]], so it holds in between too: a ratio of
    two costs that are linear in the batch has no extremum inside.
    """
    table = costs.table(longest)
    tokens = counts.tokens_per_step(table.shape[1] - 1)
    ratios = tokens * np.asarray(costs.plain)[:, None] / table
    worse: NDArray[np.float64] = np.minimum(ratios, np.concatenate([ratios[:1], ratios[:-1]]))
    return worse


def choose_lengths(
    costs: StepCosts,
    counts: AcceptanceCounts,
    longest: int,
    response_tokens: Sequence[int],
    current: Choice | None = None,
) -> Choice:
    """The best length per batch size, or 0 throughout unless a call gains `LEAST_GAIN`.

    Per batch a length must gain as much over 0. `response_tokens` are the lengths of the responses
    of such a call, which all start at once: they say how long how many run. What is in `current`
    stays while it gains `KEEP_GAIN` and the best is not `SWITCH_GAIN` better. At most one position
    beyond the known ones is drafted: that is how they become known, a call at a time.
    """
    longest = min(longest, counts.known + 1)
    speedups = predicted_speedups(costs, counts, longest)
    chosen = [
        _best_length(row, 0 if current is None else min(current.lengths[number], longest))
        for number, row in enumerate(speedups)
    ]
    gains = tuple(float(row[k]) for row, k in zip(speedups, chosen, strict=True))
    drafting = Choice(costs.batches, tuple(chosen), gains)
    gain = call_speedup(costs, counts, drafting, response_tokens)
    drafts_now = current is not None and any(current.lengths)
    if any(chosen) and gain >= (KEEP_GAIN if drafts_now else LEAST_GAIN):
        return replace(drafting, speedup=gain)
    nothing = (0,) * len(costs.batches)
    return Choice(costs.batches, nothing, (1.0,) * len(costs.batches))


def call_speedup(
    costs: StepCosts, counts: AcceptanceCounts, choice: Choice, response_tokens: Sequence[int]
) -> float:
    """Seconds of a call that never drafts over those under `choice`.

    Responses of the lengths given start together; when t tokens are out, those longer than t run.
    """
    ends = np.sort(np.asarray(response_tokens))
    running_T = len(ends) - np.searchsorted(ends, np.arange(int(ends[-1])), side="right")
    running_T = np.minimum(running_T, costs.batches[-1])
    longest = max(choice.lengths)
    tokens, table = counts.tokens_per_step(longest), costs.table(longest)
    lengths_T = np.asarray(choice.lengths)[np.searchsorted(costs.batches, running_T)]
    plain_T = np.interp(running_T, costs.batches, costs.plain)
    seconds_T = np.zeros(len(running_T))
    for k in set(choice.lengths):
        steps_T = np.interp(running_T, costs.batches, table[:, k]) / tokens[k]
        seconds_T = np.where(lengths_T == k, steps_T, seconds_T)
    return float(plain_T.sum() / seconds_T.sum())


def _best_length(speedups: NDArray[np.float64], held: int) -> int:
    best, bar = int(np.argmax(speedups)), LEAST_GAIN
    if held and speedups[held] * SWITCH_GAIN >= speedups[best]:
        best, bar = held, KEEP_GAIN
    return best if speedups[best] >= bar * speedups[0] else 0


def _growing(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest ascending values; infinite ones stay."""
    known = np.isfinite(seconds)
    result = seconds.copy()
    result[known] = isotonic_regression(seconds[known]).x
    return result


def _cautious(successes: float, trials: float, guess: float) -> float:
    """Mean of Beta(guess and counts) less a standard deviation, as far as it is from counts."""
    weight = trials + PRIOR_DRAFTS
    mean = (successes + PRIOR_DRAFTS * guess) / weight
    deviation = sqrt(max(0.0, mean * (1.0 - mean)) / (weight + 1.0))
    return max(0.0, mean - deviation * trials / weight)


def _faded(old: Sequence[float], new: Sequence[float], kept: float) -> tuple[float, ...]:
    size = max(len(old), len(new))
    return tuple(kept * _at(old, i) + _at(new, i) for i in range(size))


def _at(values: Sequence[float], position: int) -> float:
    return values[position] if position < len(values) else 0.0
