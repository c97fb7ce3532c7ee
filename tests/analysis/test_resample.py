"""Intervals cover the truth as often as they claim, for steps that are correlated."""

import numpy as np
import pandas as pd
import pytest
from synthetic import AR, EAGLE, Truth, run_of

from analysis.arms import ARM, BASELINE, LINEAR, pair_figures
from analysis.columns import counted
from analysis.resample import FEWEST_STEPS, Means, block_length, intervals
from specrl.algo.amdahl import step_speedup

SIMULATIONS = 200


def correlated(rng: np.random.Generator, steps: int, memory: float, spread: float) -> np.ndarray:
    """An AR(1) series with that standard deviation."""
    series = np.zeros(steps + 30)
    shocks = rng.normal(0, spread * np.sqrt(1 - memory**2), steps + 30)
    for step in range(1, steps + 30):
        series[step] = memory * series[step - 1] + shocks[step]
    return series[30:]


def speedup(means: Means) -> dict[str, np.ndarray]:
    return {"speedup": means["ar"] / means["arm"]}


def pair(rng: np.random.Generator, steps: int, memory: float, between: float) -> pd.DataFrame:
    """Seconds of two arms, the second twice as fast; both follow the same drift."""
    drift = np.exp(correlated(rng, steps, 0.9, 0.3))
    noise = [np.exp(correlated(rng, steps, memory, 0.1) - 0.005) for _ in range(2)]
    own = np.exp(rng.normal(0, between)) if between else 1.0
    return pd.DataFrame({"ar": 10 * drift * noise[0], "arm": 5 * own * drift * noise[1]})


@pytest.mark.parametrize(
    ("steps", "memory", "seeds", "between", "least"),
    [(40, 0.0, 1, 0.0, 0.92), (60, 0.5, 1, 0.0, 0.90), (200, 0.7, 1, 0.0, 0.90),
     (60, 0.5, 3, 0.0, 0.90), (60, 0.3, 3, 0.1, 0.85)],
)  # fmt: skip
def test_a_speedups_interval_covers_the_truth(
    steps: int, memory: float, seeds: int, between: float, least: float
) -> None:
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(SIMULATIONS):
        tables = [pair(rng, steps, memory, between) for _ in range(seeds)]
        found = intervals(tables, speedup)["speedup"]
        inside += found.low <= 2.0 <= found.high
    assert least <= inside / SIMULATIONS <= 1.0


def test_pairing_by_step_takes_out_the_drift_that_both_arms_share() -> None:
    table = pair(np.random.default_rng(3), 100, 0.0, 0.0)
    found = intervals([table], lambda m: {"speedup": m["ar"] / m["arm"], "seconds": m["ar"]})
    width = {name: value.high / value.low for name, value in found.items()}
    assert width["speedup"] < 1.1 < width["seconds"]


def test_seeds_that_differ_widen_the_interval_and_seeds_that_agree_narrow_it() -> None:
    rng = np.random.default_rng(5)
    widths: dict[str, list[float]] = {"one": [], "agreeing": [], "differing": []}
    for _ in range(20):
        tables = [pair(rng, 60, 0.0, 0.0) for _ in range(4)]
        factors = (1, 1.3, 0.8, 1.1)
        apart = [t.assign(arm=t["arm"] * f) for t, f in zip(tables, factors, strict=True)]
        for name, seeds in (("one", tables[:1]), ("agreeing", tables), ("differing", apart)):
            found = intervals(seeds, speedup)["speedup"]
            widths[name].append(found.high - found.low)
    one, agreeing, differing = (float(np.median(widths[name])) for name in widths)
    assert agreeing < 0.7 * one
    assert differing > 2 * one


def test_few_steps_give_a_number_without_an_interval() -> None:
    table = pair(np.random.default_rng(0), FEWEST_STEPS - 1, 0.0, 0.0)
    found = intervals([table], speedup)["speedup"]
    assert (found.low, found.high, found.steps) == (None, None, FEWEST_STEPS - 1)


def test_figures_that_are_not_finite_are_left_out() -> None:
    table = pair(np.random.default_rng(0), 30, 0.0, 0.0)
    found = intervals([table], lambda m: {**speedup(m), "none": m["ar"] * np.nan})
    assert set(found) == {"speedup"}
    assert intervals([table.iloc[:0]], speedup) == {}


def test_blocks_grow_with_the_memory_of_the_series() -> None:
    rng = np.random.default_rng(1)
    assert block_length(rng.normal(size=400)) < block_length(correlated(rng, 400, 0.9, 1.0))
    assert block_length(np.ones(50)) == 1


@pytest.mark.slow
def test_synthetic_runs_give_back_alpha_cost_and_speedups_within_their_intervals() -> None:
    names = ("acceptance", "cost", "generation", "step", "bound", "predicted")
    spec = Truth(alpha=2.6, cost=1.7)
    share, generation = spec.share, spec.generation_speedup
    truth = {
        "acceptance": 2.6,
        "cost": 1.7,
        "generation": generation,
        "step": step_speedup(share, generation),
        "bound": step_speedup(share, 2.6),
        "predicted": step_speedup(share, generation),
    }
    inside = dict.fromkeys(names, 0)
    for seed in range(SIMULATIONS // 4):
        ar, arm = run_of(AR, Truth(), 60, seed), run_of(EAGLE, spec, 60, seed)
        left, right = (counted(run, 1) for run in (ar, arm))
        table = left.add_prefix(BASELINE).join(right.add_prefix(ARM))
        found = intervals([table], lambda m: {k: pair_figures(m)[k] for k in names}, LINEAR)
        for name in names:
            assert found[name].value == pytest.approx(truth[name], rel=0.05)
            inside[name] += found[name].low <= truth[name] <= found[name].high
    assert min(inside.values()) >= 0.86 * (SIMULATIONS // 4), inside
