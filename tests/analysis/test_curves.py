"""A difference of curves is found as often as the test says, and never without its power."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic import AR, EAGLE, Truth, run_of

from analysis.arms import arm_of
from analysis.columns import ACCURACY, REWARD
from analysis.curves import curve_tests, detectable_difference
from analysis.matching import arm_key
from analysis.records import CurveTest, Match, Run

SIMULATIONS = 100


def matched(ar: Run, arm: Run) -> Match:
    left, right = (arm_of(arm_key(run.config), [run], 1) for run in (ar, arm))
    return Match(left, right)


AR_RUN, EAGLE_RUN = run_of(AR), run_of(EAGLE, Truth(alpha=2.0))
PAIR = matched(AR_RUN, EAGLE_RUN)


def accuracies(
    rng: np.random.Generator, points: int, truth: float, prompts: float = 80.0
) -> pd.DataFrame:
    samples = int(prompts * 4)
    right = rng.binomial(samples, truth, points) / samples
    columns = {ACCURACY: right, "eval/num_prompts": prompts, "eval/samples": 4.0}
    return pd.DataFrame(columns, index=range(0, 10 * points, 10))


def result_of(ar: pd.DataFrame, arm: pd.DataFrame, metric: str = ACCURACY) -> CurveTest:
    left, right = (
        replace(side, runs=(replace(side.runs[0], evaluations=frame, steps=side.runs[0].steps),))
        for side, frame in ((PAIR.baseline, ar), (PAIR.arm, arm))
    )
    found = curve_tests("title", replace(PAIR, baseline=left, arm=right))
    return next(test for test in found if test.metric == metric)


def share_differing(rng: np.random.Generator, difference: float) -> float:
    verdicts = [
        result_of(accuracies(rng, 8, 0.5), accuracies(rng, 8, 0.5 + difference)).verdict
        for _ in range(SIMULATIONS)
    ]
    return verdicts.count("differ") / SIMULATIONS


def test_equal_curves_are_told_apart_no_more_often_than_the_level() -> None:
    assert share_differing(np.random.default_rng(0), 0.0) <= 0.10


@pytest.mark.slow
def test_the_smallest_detectable_difference_is_detected_with_the_power_claimed() -> None:
    rng = np.random.default_rng(1)
    claimed = result_of(accuracies(rng, 8, 0.5), accuracies(rng, 8, 0.5)).detectable
    assert claimed is not None
    assert 0.70 <= share_differing(rng, claimed) <= 0.90
    assert share_differing(rng, 3 * claimed) > 0.98


def test_the_detectable_difference_is_2_8_standard_errors() -> None:
    assert detectable_difference(1.0) == pytest.approx(2.80, abs=0.005)


def test_indistinguishable_is_said_with_the_difference_that_would_have_been_seen() -> None:
    rng = np.random.default_rng(2)
    test = result_of(accuracies(rng, 8, 0.5), accuracies(rng, 8, 0.5))
    assert test.verdict == "indistinguishable"
    assert f"a difference of {test.detectable:.4f} or more would have been seen" in test.text
    assert "binomial" in test.noise


def test_more_prompts_see_smaller_differences() -> None:
    rng = np.random.default_rng(3)

    def detectable(prompts: float) -> float:
        return result_of(*(accuracies(rng, 8, 0.5, prompts) for _ in range(2))).detectable

    assert detectable(20) == pytest.approx(4 * detectable(320), rel=0.05)


def test_accuracies_of_zero_are_not_without_noise() -> None:
    rng = np.random.default_rng(4)
    test = result_of(accuracies(rng, 5, 0.0), accuracies(rng, 5, 0.0))
    assert test.verdict == "indistinguishable"
    assert test.detectable > 0


def test_two_points_say_nothing() -> None:
    rng = np.random.default_rng(5)
    test = result_of(accuracies(rng, 2, 0.2), accuracies(rng, 2, 0.9))
    assert (test.verdict, test.difference, test.detectable) == ("cannot tell", None, None)
    assert "a test needs 3" in test.text


def test_only_evaluations_that_both_have_are_compared() -> None:
    rng = np.random.default_rng(6)
    arm = accuracies(rng, 8, 0.5)
    arm.loc[30, ACCURACY] = np.nan
    assert result_of(accuracies(rng, 12, 0.5), arm).points == 7


def test_equal_rewards_are_told_apart_no_more_often_than_the_level_and_a_drop_is_found() -> None:
    def differing(reward: float) -> float:
        found = []
        for seed in range(40):
            arm = run_of(EAGLE, Truth(alpha=2.0, reward=reward), 60, seed=seed)
            ar = run_of(AR, Truth(), 60, seed=seed)
            pair = replace(
                PAIR,
                baseline=replace(PAIR.baseline, runs=(ar,)),
                arm=replace(PAIR.arm, runs=(arm,)),
            )
            tests = curve_tests("title", pair)
            found += [t.verdict for t in tests if t.metric == REWARD]
        return found.count("differ") / len(found)

    assert differing(0.4) <= 0.15
    assert differing(0.3) > 0.95
