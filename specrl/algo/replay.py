"""What speculation with a draft would have counted on responses that are already there.

A response is a path of the policy. On it a draft token is kept with probability
min(1, q / p) when the draft samples from q, 1 or 0 when it proposes its best token, so drafting
is a renewal process over the tokens that drafts start from, and its counts have exact means.

Legend: N responses, R response tokens, K draft positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedCounts:
    """Means of the counts of `specrl.types.SpecStats`, summed over responses."""

    num_drafts: float
    num_draft_tokens: tuple[float, ...]
    num_accepted_tokens: tuple[float, ...]
    num_decode_steps: float
    num_tokens: int

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per verification step, bonus token included (1..k+1); None without drafts."""
        if self.num_drafts == 0.0:
            return None
        return 1.0 + sum(self.num_accepted_tokens) / self.num_drafts

    @property
    def position_rates(self) -> tuple[float, ...]:
        """Share of the drafted tokens that is accepted, by position; 0 where none is drafted."""
        pairs = zip(self.num_accepted_tokens, self.num_draft_tokens, strict=True)
        return tuple(accepted / drafted if drafted else 0.0 for accepted, drafted in pairs)


def expected_counts(kept: Sequence[ArrayLike], k: int) -> ExpectedCounts:
    """Counts of generating the responses with drafts of `k` tokens.

    `kept[n]` is [R, at least k]: entry [t, s] the probability that token s of a draft that starts
    after response token t, which predicts response token t + 1 + s, is kept if all before it are.
    The prefill gives token 0 and n kept tokens the next start t + n + 1. What runs over the
    response's end is cut as in the engine's counts: a draft kept up to or beyond the end
    drafted and accepted exactly the tokens that were left.
    """
    matrices = [np.asarray(matrix, dtype=np.float64) for matrix in kept]
    lengths_N = np.array([len(matrix) for matrix in matrices], dtype=np.int64)
    longest = int(lengths_N.max(initial=0))
    kept_NRK = np.zeros((len(matrices), longest, k))
    for row, matrix in enumerate(matrices):
        assert matrix.shape[1] >= k, (matrix.shape, k)
        kept_NRK[row, : len(matrix)] = matrix[:, :k]
    runs_NRK = kept_NRK.cumprod(axis=2)
    left_NR = lengths_N[:, None] - 1 - np.arange(longest)[None, :]
    runs_NRK *= np.arange(k) < left_NR[:, :, None]
    starts_NR = _starts(runs_NRK, left_NR)
    drafted_K, accepted_K = _position_counts(starts_NR, runs_NRK, left_NR)
    num_drafts = float(starts_NR.sum())
    return ExpectedCounts(
        num_drafts=num_drafts,
        num_draft_tokens=tuple(drafted_K.tolist()),
        num_accepted_tokens=tuple(accepted_K.tolist()),
        num_decode_steps=num_drafts + float((lengths_N > 0).sum()),
        num_tokens=int(lengths_N.sum()),
    )


def _starts(runs_NRK: Floats, left_NR: NDArray[np.int64]) -> Floats:
    """Probability that a draft starts after response token t; none does after the last."""
    count, longest, k = runs_NRK.shape
    starts = np.zeros((count, longest + k + 1))
    starts[:, 0] = 1.0
    for t in range(longest):
        starts[:, t] *= left_NR[:, t] > 0
        # Exactly n tokens kept: n = 0..k.
        at_least = np.concatenate([np.ones((count, 1)), runs_NRK[:, t], np.zeros((count, 1))], 1)
        exactly = at_least[:, :-1] - at_least[:, 1:]
        starts[:, t + 1 : t + k + 2] += starts[:, t, None] * exactly
    return starts[:, :longest]


def _position_counts(
    starts_NR: Floats, runs_NRK: Floats, left_NR: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    k = runs_NRK.shape[2]
    last_NR = np.clip(left_NR, 1, k) - 1
    to_end_NR = np.take_along_axis(runs_NRK, last_NR[:, :, None], axis=2)[:, :, 0]
    beyond_NRK = np.arange(k) >= left_NR[:, :, None]
    drafted_NRK = np.where(beyond_NRK, 1.0 - to_end_NR[:, :, None], 1.0)
    drafted_K = np.einsum("nr,nrk->k", starts_NR, drafted_NRK)
    return drafted_K, np.einsum("nr,nrk->k", starts_NR, runs_NRK)
