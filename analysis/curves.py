"""Whether the learning curves of two matched arms differ, and what the test could have seen."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.power import NormalIndPower

from analysis.arms import seed_pairs
from analysis.columns import ACCURACY, REWARD
from analysis.records import CurveTest, Interval, Match, Verdict
from analysis.resample import CONFIDENCE, FEWEST_STEPS, intervals

LEVEL = 1.0 - CONFIDENCE
POWER = 0.8
TWO_SIDED = float(stats.norm.ppf(1 - LEVEL / 2))
FEWEST_EVALUATIONS = 3
COUNTED = (ACCURACY, "eval/num_prompts", "eval/samples")
NAMES = {ACCURACY: "validation accuracy", REWARD: "mean reward"}
BINOMIAL = "binomial noise of the validation samples"
STEPS = "differences between steps (block bootstrap)"
SEEDS = "differences between seeds"


def curve_tests(title: str, match: Match) -> tuple[CurveTest, ...]:
    """Validation accuracy and reward of a matched pair; a metric that no run has is left out."""
    pairs, _ = seed_pairs(match.baseline, match.arm)
    tables = {
        ACCURACY: [_evaluations(ar.evaluations, run.evaluations) for ar, run in pairs],
        REWARD: [_rewards(ar.steps, run.steps) for ar, run in pairs],
    }
    return tuple(
        _test(title, match.arm.label, metric, [t for t in found if len(t)])
        for metric, found in tables.items()
        if any(len(table) for table in found)
    )


def _test(title: str, label: str, metric: str, seeds: Sequence[pd.DataFrame]) -> CurveTest:
    """`seeds` have columns difference and variance (binomial; 0 where there is none)."""
    points = sum(len(table) for table in seeds)
    fewest = FEWEST_EVALUATIONS if metric == ACCURACY else FEWEST_STEPS
    if points < fewest:
        text = (
            f"{label}: {NAMES[metric]} has {points} point(s) that both runs have; a test needs "
            f"{fewest}, so nothing can be said"
        )
        return CurveTest(title, label, metric, points, None, None, None, "", "cannot tell", text)
    mean = float(pd.concat(seeds)["difference"].mean())
    error, noise = max(_errors(seeds, points))
    if error == 0:
        text = f"{label}: {NAMES[metric]} never varied, so nothing can be said"
        return CurveTest(title, label, metric, points, None, None, None, "", "cannot tell", text)
    p_value = float(2 * stats.norm.sf(abs(mean) / error))
    reach = TWO_SIDED * error
    difference = Interval(mean, mean - reach, mean + reach, points)
    detectable = detectable_difference(error)
    verdict: Verdict = "differ" if p_value < LEVEL else "indistinguishable"
    text = _sentence(label, metric, difference, p_value, detectable)
    return CurveTest(
        title, label, metric, points, difference, p_value, detectable, noise, verdict, text
    )


def detectable_difference(error: float) -> float:
    """The smallest mean difference a two-sided 5 % test with this standard error sees, 80 %."""
    return _errors_seen() * error


@cache
def _errors_seen() -> float:
    power = NormalIndPower(ddof=0)
    size = power.solve_power(nobs1=1, alpha=LEVEL, power=POWER, ratio=0, alternative="two-sided")
    return float(size)


def _sentence(
    label: str, metric: str, difference: Interval, p_value: float, detectable: float
) -> str:
    low, high = difference.low, difference.high
    what = (
        f"{label}: {NAMES[metric]} {difference.value:+.4f} against autoregressive (95 % {low:+.4f} "
        f"to {high:+.4f}, p = {p_value:.2g}, {difference.steps} points)"
    )
    if p_value < LEVEL:
        return f"{what}: the curves differ"
    return (
        f"{what}: indistinguishable, where a difference of {detectable:.4f} or more would have "
        "been seen with 80 % power"
    )


def _errors(seeds: Sequence[pd.DataFrame], points: int) -> list[tuple[float, str]]:
    """Standard errors of the mean difference and what each is made of; the largest counts."""
    variance = sum(float(table["variance"].sum()) for table in seeds)
    errors = [(float(np.sqrt(variance)) / points, BINOMIAL)]
    found = intervals([table[["difference"]] for table in seeds], dict, linear={"difference"})
    spread = found["difference"]
    if spread.high is not None:
        errors.append(((spread.high - spread.value) / TWO_SIDED, STEPS))
    if len(seeds) > 1:
        means = [float(table["difference"].mean()) for table in seeds]
        errors.append((float(np.std(means, ddof=1) / np.sqrt(len(seeds))), SEEDS))
    return errors


def _evaluations(baseline: pd.DataFrame, arm: pd.DataFrame) -> pd.DataFrame:
    steps = baseline.index.intersection(arm.index)
    accuracies, variance = [], np.zeros(len(steps))
    for table in (baseline, arm):
        accuracy, prompts, per_prompt = table.loc[steps, [*COUNTED]].to_numpy(float).T
        samples = prompts * per_prompt
        # One success and one failure more (Wilson's centre): 0 of n is not without noise.
        share = (accuracy * samples + 1) / (samples + 2)
        with np.errstate(divide="ignore"):  # no samples: the step is left out below
            variance += share * (1 - share) / samples
        accuracies.append(accuracy)
    difference = accuracies[1] - accuracies[0]
    known = np.isfinite(difference) & np.isfinite(variance)
    columns = {"difference": difference[known], "variance": variance[known]}
    return pd.DataFrame(columns, index=steps[known])


def _rewards(baseline: pd.DataFrame, arm: pd.DataFrame) -> pd.DataFrame:
    difference = (arm[REWARD] - baseline[REWARD]).dropna()
    return pd.DataFrame({"difference": difference, "variance": 0.0 * difference})
