"""Confidence intervals of ratios over RL steps, which are correlated, and over seeds.

Legend: N steps, C columns (sums per step), B bootstrap replicates, S seeds.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from arch.bootstrap import CircularBlockBootstrap, optimal_block_length
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from analysis.records import Interval

Floats = NDArray[np.float64]
Means = Mapping[str, Floats]
Statistics = Callable[[Means], Mapping[str, Floats]]

CONFIDENCE = 0.95
REPLICATES = 400
FEWEST_STEPS = 10
"""Fewer steps than this say too little about their own spread for an interval."""

FEWEST_BLOCKS = 4
LONGER = 1.5
"""Blocks are at least this times the length of Politis and White, with which intervals of 30 to 200
steps cover too little (tests/analysis/test_resample.py)."""

HOMOGENEOUS = 0.1
"""p-value of Cochran's Q above which seeds count as repeats of one another."""

SEED = 0

METHOD = (
    "95 % intervals: circular block bootstrap over steps, 1.5 to 3 times the block length of "
    "Politis and White, arms and seeds resampled by the same steps, t quantile with one degree of "
    f"freedom less than blocks; none below {FEWEST_STEPS} steps. Several seeds: ratios of sums "
    "over all; where seeds differ by more than their steps explain, a random-effects interval "
    "(Hartung-Knapp)"
)


def intervals(
    seeds: Sequence[pd.DataFrame],
    statistics: Statistics,
    linear: Collection[str] = (),
    plain: Collection[str] = (),
) -> dict[str, Interval]:
    """Each statistic of the pooled steps; those that are not finite are left out.

    `seeds` has a frame [N, C] per seed with the same columns. `statistics` maps column means, each
    of shape [...], to figures of that shape; it must not depend on the scale of N. Positive
    figures get their interval on a log scale, those named in `linear` and those not above 0 on
    their own; those in `plain` get none.
    """
    names = list(seeds[0].columns) if seeds else []
    rows = [seed.to_numpy(float) for seed in seeds]
    steps = sum(len(rows_NC) for rows_NC in rows)
    if not steps:
        return {}
    means_C = np.concatenate(rows).mean(axis=0)
    values = {k: float(v) for k, v in statistics(_named(means_C, names)).items()}
    found = {name: Interval(v, steps=steps) for name, v in values.items() if np.isfinite(v)}
    if steps < FEWEST_STEPS:
        return found
    spread = {name: value.value for name, value in found.items() if name not in plain}
    linear = {name for name, value in spread.items() if name in linear or value <= 0}
    slopes = _slopes(means_C, names, statistics, spread, linear)
    longest = max(rows, key=len)
    by_length: dict[int, list[str]] = {}
    for name, slope_C in slopes.items():
        by_length.setdefault(block_length(longest @ slope_C), []).append(name)
    measured_SC = np.stack([rows_NC.mean(axis=0) for rows_NC in rows])
    measured = statistics(_named(measured_SC, names)) if len(rows) > 1 else {}
    for length, members in by_length.items():
        drawn = _drawn(rows, names, statistics, length)
        for name in members:
            found[name] = _interval(found[name], name, drawn, measured, name in linear)
    return found


@dataclass(frozen=True)
class _Drawn:
    """Statistics of the replicates of one block length, `pooled` [B] and `by_seed` [S, B].

    `by_seed` is empty with one seed; `blocks` counts them by seed.
    """

    pooled: Mapping[str, Floats]
    by_seed: Mapping[str, Floats]
    blocks: Sequence[float]


def _drawn(
    rows: Sequence[Floats], names: Sequence[str], statistics: Statistics, length: int
) -> _Drawn:
    steps_S = np.array([len(rows_NC) for rows_NC in rows])
    lengths = [min(length, max(1, steps // FEWEST_BLOCKS)) for steps in steps_S]
    means_SBC = np.stack(
        [_weights(len(rows_NC), own) @ rows_NC for rows_NC, own in zip(rows, lengths, strict=True)]
    )
    pooled_BC = np.tensordot(steps_S / steps_S.sum(), means_SBC, axes=1)
    return _Drawn(
        pooled=statistics(_named(pooled_BC, names)),
        by_seed=statistics(_named(means_SBC, names)) if len(rows) > 1 else {},
        blocks=[steps / own for steps, own in zip(steps_S, lengths, strict=True)],
    )


def _interval(
    value: Interval, name: str, drawn: _Drawn, measured: Mapping[str, Floats], linear: bool
) -> Interval:
    """`measured` has each statistic by seed, [S]; empty with one seed."""

    def scale(figures: Mapping[str, Floats]) -> Floats:
        figure = np.asarray(figures[name], float)
        with np.errstate(invalid="ignore", divide="ignore"):  # a replicate at or below 0
            return figure if linear else np.log(figure)

    blocks = sum(drawn.blocks)
    df = max(1.0, blocks - len(drawn.blocks))
    reach = _spread(scale(drawn.pooled)) * np.sqrt(blocks / df)
    reach *= stats.t.ppf(0.5 + CONFIDENCE / 2, df)
    if measured:
        errors = [
            _spread(draws_B) * np.sqrt(count / max(1.0, count - 1))
            for draws_B, count in zip(scale(drawn.by_seed), drawn.blocks, strict=True)
        ]
        reach = max(reach, _between_seeds(scale(measured), errors))
    middle = value.value
    if linear:
        return replace(value, low=float(middle - reach), high=float(middle + reach))
    return replace(value, low=float(middle * np.exp(-reach)), high=float(middle * np.exp(reach)))


def _between_seeds(effects: Floats, errors: Sequence[float]) -> float:
    """Half width of the random-effects interval; 0 where the seeds agree within their errors."""
    variances = np.square(errors)
    if not np.all(variances > 0) or np.ptp(effects) == 0:
        return 0.0
    # The variance between seeds may come out below 0; the test below then finds them alike.
    with np.errstate(invalid="ignore", divide="ignore"):
        combined = combine_effects(effects, variances, method_re="dl", use_t=True)
    if combined.test_homogeneity().pvalue > HOMOGENEOUS:
        return 0.0
    _, (low, high), *_ = combined.conf_int(alpha=1 - CONFIDENCE)
    reach = float(high - low) / 2
    return reach if np.isfinite(reach) else 0.0


def block_length(series_N: Floats) -> int:
    """Steps after which the series has forgotten itself, rounded up to a power of two.

    There are at least `FEWEST_BLOCKS` blocks.
    """
    longest = max(1, len(series_N) // FEWEST_BLOCKS)
    if len(series_N) < FEWEST_STEPS or np.ptp(series_N) == 0:
        return 1
    with np.errstate(divide="ignore", invalid="ignore"):  # short series: "not finite" says so
        found = LONGER * float(optimal_block_length(series_N)["circular"].iloc[0])
    rounded = 2 ** int(np.ceil(np.log2(max(1.0, found)))) if np.isfinite(found) else longest
    return int(np.clip(rounded, 1, longest))


@lru_cache(maxsize=32)
def _weights(steps: int, length: int) -> Floats:
    """[B, N]: the share of each step in each replicate."""
    bootstrap = CircularBlockBootstrap(length, np.arange(steps), seed=SEED)
    drawn = bootstrap.bootstrap(REPLICATES)
    counts = [np.bincount(data[0][0], minlength=steps) for data in drawn]
    weights: Floats = np.asarray(counts, float) / steps
    return weights


def _slopes(
    means_C: Floats,
    names: Sequence[str],
    statistics: Statistics,
    values: Mapping[str, float],
    linear: Collection[str],
) -> dict[str, Floats]:
    """[C] per statistic: how it moves with each column's mean (of its log, unless linear)."""
    nudge_C = 1e-4 * np.where(means_C == 0, 1.0, np.abs(means_C))
    moved = statistics(_named(means_C + np.diag(nudge_C), names))
    slopes = {}
    for name, value in values.items():
        change = np.nan_to_num((np.asarray(moved[name]) - value) / nudge_C)
        slopes[name] = change if name in linear else change / value
    return slopes


def _spread(draws_B: Floats) -> float:
    finite = draws_B[np.isfinite(draws_B)]
    return float(finite.std(ddof=1)) if len(finite) > 1 else 0.0


def _named(means: Floats, names: Sequence[str]) -> dict[str, Floats]:
    return {name: means[..., i] for i, name in enumerate(names)}
