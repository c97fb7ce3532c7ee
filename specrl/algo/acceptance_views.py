"""Acceptance seen from several sides: which responses, and where in them, drafts fit.

Legend: N decode steps of all rollouts, K draft positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specrl.types import Float32, Metrics, Rollout

ENTROPY_EDGES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Buckets of policy entropy, in nats; the last one has no upper end."""

DECILES = 10

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Steps:
    """One entry per decode step with a draft; `position_N` is its first token's in the response."""

    rollout_N: Ints
    position_N: Ints
    drafted_N: Ints
    accepted_N: Ints

    def only(self, kept_N: NDArray[np.bool_]) -> "_Steps":
        return _Steps(
            self.rollout_N[kept_N],
            self.position_N[kept_N],
            self.drafted_N[kept_N],
            self.accepted_N[kept_N],
        )


def acceptance_views(
    rollouts: Sequence[Rollout], entropies: Sequence[Float32 | None] = ()
) -> Metrics:
    """`spec/by_<view>/<bucket>/*` over the steps that had a draft; {} without any.

    Each bucket has `num_drafts`, `acceptance_length` (1..k+1) and, per draft position that was
    drafted, `acceptance_rate_pos_<i>` with its denominator `drafted_pos_<i>`; buckets without
    drafts are left out. Views: `lag` (policy versions behind the newest rollout's), `length` (of
    the response, in tokens), `decile` (where in its response the step began), `entropy` (the
    response's mean, in nats) and `token_entropy` (that of the step's first token, which draft
    position 0 proposed). `entropies` has an entry per rollout; None leaves it out of both.
    """
    steps = _steps(rollouts)
    if not len(steps.rollout_N):
        return {}
    lengths = np.asarray([len(r.token_ids) for r in rollouts])
    oldest = np.asarray([r.versions[0] for r in rollouts])
    lags_N = (max(v for r in rollouts for v in r.versions) - oldest)[steps.rollout_N]
    lengths_N = lengths[steps.rollout_N]
    magnitude_N = np.floor(np.log2(lengths_N)).astype(np.int64)
    deciles_N = DECILES * steps.position_N // lengths_N
    lags = [str(lag) for lag in range(int(lags_N.max()) + 1)]
    octaves = [_octave(magnitude) for magnitude in range(int(magnitude_N.max()) + 1)]
    metrics = {
        **_view("lag", lags, lags_N, steps),
        **_view("length", octaves, magnitude_N, steps),
        **_view("decile", [str(decile) for decile in range(DECILES)], deciles_N, steps),
    }
    return {**metrics, **_entropy_views(steps, entropies)}


def _steps(rollouts: Sequence[Rollout]) -> _Steps:
    counts = [np.asarray(r.draft_steps, np.int64).reshape(-1, 2) for r in rollouts]
    nothing: Ints = np.zeros(0, np.int64)
    position_N = np.concatenate([nothing, *(np.cumsum(1 + c[:, 1]) - 1 - c[:, 1] for c in counts)])
    rollout_N = np.repeat(np.arange(len(counts)), [len(c) for c in counts])
    drafted_N, accepted_N = np.concatenate([nothing.reshape(0, 2), *counts]).T
    return _Steps(rollout_N, position_N, drafted_N, accepted_N).only(drafted_N > 0)


def _entropy_views(steps: _Steps, entropies: Sequence[Float32 | None]) -> Metrics:
    known = np.asarray([e is not None for e in entropies], bool)
    if not known.any():
        return {}
    means = np.asarray([np.nan if e is None else float(np.mean(e)) for e in entropies])
    some = steps.only(known[steps.rollout_N])
    offsets = np.cumsum([0] + [0 if e is None else len(e) for e in entropies])
    flat = np.concatenate([e for e in entropies if e is not None])
    names = _entropy_names()
    response_N = np.digitize(means[some.rollout_N], ENTROPY_EDGES[1:])
    token_N = np.digitize(flat[offsets[some.rollout_N] + some.position_N], ENTROPY_EDGES[1:])
    return {
        **_view("entropy", names, response_N.astype(np.int64), some),
        **_view("token_entropy", names, token_N.astype(np.int64), some),
    }


def _view(name: str, buckets: Sequence[str], bucket_N: Ints, steps: _Steps) -> Metrics:
    size = len(buckets)
    drafts = np.bincount(bucket_N, minlength=size)
    accepted = np.bincount(bucket_N, steps.accepted_N, minlength=size)
    metrics: dict[str, float] = {}
    for number in np.flatnonzero(drafts):
        prefix = f"spec/by_{name}/{buckets[number]}"
        metrics[f"{prefix}/num_drafts"] = float(drafts[number])
        metrics[f"{prefix}/acceptance_length"] = 1.0 + float(accepted[number] / drafts[number])
    for position in range(int(steps.drafted_N.max(initial=0))):
        reached = np.bincount(bucket_N, steps.drafted_N > position, minlength=size)
        kept = np.bincount(bucket_N, steps.accepted_N > position, minlength=size)
        for number in np.flatnonzero(reached):
            prefix = f"spec/by_{name}/{buckets[number]}"
            rate = float(kept[number] / reached[number])
            metrics[f"{prefix}/acceptance_rate_pos_{position}"] = rate
            metrics[f"{prefix}/drafted_pos_{position}"] = float(reached[number])
    return metrics


def _octave(magnitude: int) -> str:
    """ "0064-0127" for 6: names sort as their lengths do."""
    return f"{2**magnitude:04d}-{2 ** (magnitude + 1) - 1:04d}"


def _entropy_names() -> list[str]:
    ends = [f"{edge:.2f}" for edge in ENTROPY_EDGES[1:]] + ["up"]
    return [f"{low:.2f}-{high}" for low, high in zip(ENTROPY_EDGES, ends, strict=True)]
