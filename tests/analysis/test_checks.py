"""The Amdahl check names what is suspect; decisions follow from what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import AR, EAGLE, Truth, run_of, untold, views_of

from analysis.compose import compose
from analysis.decisions import BREAK_EVEN, INIT, WHICH_K
from analysis.decisions import ONLINE as ONLINE_PAYS
from analysis.paper import load_paper
from analysis.records import AmdahlCheck, Decision, Report, Run
from specrl.algo.amdahl import step_speedup

SPEC = Truth(alpha=2.6, cost=1.7)
ONLINE = {**EAGLE, "adaptation.name": "online"}


def report_of(*runs: Run) -> Report:
    return compose(load_paper(), runs, views_of, 1, untold)


def check_of(arm: Run, baseline: Run | None = None) -> AmdahlCheck:
    report = report_of(baseline or run_of(AR), arm)
    return next(check for check in report.checks if check.source == "ours")


def test_the_check_recovers_what_the_runs_were_made_with() -> None:
    check = check_of(run_of(EAGLE, SPEC))
    truth = {
        "share": SPEC.share,
        "acceptance": 2.6,
        "generation": 2.6 / 1.7,
        "step": step_speedup(SPEC.share, 2.6 / 1.7),
        "bound": step_speedup(SPEC.share, 2.6),
        "engine_bound": step_speedup(SPEC.share, 2.6),
        "predicted": step_speedup(SPEC.share, 2.6 / 1.7),
        "cost": 1.7,
    }
    for name, value in truth.items():
        found = getattr(check, name)
        assert found.value == pytest.approx(value, rel=0.04), name
        assert found.low < value < found.high, name
    assert not check.violation


def test_saved_seconds_add_up_to_the_difference_of_the_steps() -> None:
    check = check_of(run_of(EAGLE, replace(SPEC, tokens=1800.0, training_s=3.0)))
    saved = {part: value.value for part, value in check.saved_s.items()}
    assert sum(saved.values()) == pytest.approx(check.baseline_s["step"] - check.arm_s["step"])
    assert saved["training"] == pytest.approx(1.0, abs=0.15)
    assert saved["tokens"] == pytest.approx(0.1 * 10 / (2.6 / 1.7), rel=0.2)
    assert check.saved_s["training"].low > 0


def thinly_drafted(run: Run, tokens_per_step: float) -> Run:
    """The run as of a drafter that drafts on few engine steps; acceptance of those as it was."""
    steps = run.steps.assign(
        **{
            "spec/tokens_per_step": tokens_per_step,
            "spec/num_decode_steps": run.steps["rollout/tokens"] / tokens_per_step,
        }
    )
    return replace(run, steps=steps)


def never_drafted(run: Run, counted_steps: bool) -> Run:
    """The run as of a drafter that found nothing to draft."""
    steps = run.steps.assign(**{"spec/num_drafts": 0.0, "spec/acceptance_length": np.nan})
    decoded = run.steps["rollout/tokens"] if counted_steps else np.nan
    steps = steps.assign(**{"spec/tokens_per_step": 1.0, "spec/num_decode_steps": decoded})
    return replace(run, steps=steps)


def test_the_bound_of_a_drafter_that_seldom_drafts_is_that_of_its_engine_steps() -> None:
    check = check_of(thinly_drafted(run_of(EAGLE, replace(SPEC, cost=2.5)), 1.1))
    assert check.engine_bound.value == pytest.approx(step_speedup(SPEC.share, 1.1), rel=0.03)
    assert check.bound.value > check.engine_bound.value
    assert check.limit == check.engine_bound
    assert not check.violation


def test_a_speedup_above_that_bound_is_an_error_although_alpha_would_allow_it() -> None:
    # Generation is 2.6 / 1.7 = 1.53 times as fast, and a mean engine step yields 1.1 tokens.
    check = check_of(thinly_drafted(run_of(EAGLE, SPEC), 1.1))
    assert check.step.high < check.bound.value
    assert "1.10 tokens an engine step" in check.violation
    assert "suspect: acceptance length or generation time" in check.violation


def test_alpha_bounds_an_arm_whose_engine_steps_were_not_counted() -> None:
    run = run_of(EAGLE, SPEC)
    uncounted = ["spec/tokens_per_step", "spec/num_decode_steps"]
    check = check_of(replace(run, steps=run.steps.assign(**dict.fromkeys(uncounted, np.nan))))
    assert check.engine_bound is None
    assert check.limit == check.bound
    assert not check.violation


@pytest.mark.parametrize("counted_steps", [True, False])
@pytest.mark.parametrize(
    ("faster", "suspect"),
    [
        (Truth(alpha=1.3), "suspect: generation time"),
        (Truth(training_s=1.0), "suspect: training time"),
    ],
)
def test_an_arm_that_never_drafted_cannot_be_faster(
    faster: Truth, suspect: str, counted_steps: bool
) -> None:
    check = check_of(never_drafted(run_of(EAGLE, faster), counted_steps))
    assert (check.acceptance, check.bound) == (None, None)
    assert check.limit.value == pytest.approx(1.0)
    assert "is above the Amdahl bound 1.000x" in check.violation
    assert suspect in check.violation


def test_an_arm_that_never_drafted_and_is_as_fast_is_no_error() -> None:
    check = check_of(never_drafted(run_of(EAGLE, Truth()), counted_steps=True))
    assert check.step.low < 1.0 < check.step.high
    assert not check.violation


@pytest.mark.parametrize(
    ("arm", "suspect"),
    [
        (run_of(EAGLE, Truth(alpha=1.2, cost=0.5)), "suspect: acceptance length or generation"),
        (run_of(EAGLE, replace(SPEC, training_s=0.1, cost=1.2)), "suspect: training time"),
        (run_of(EAGLE, replace(SPEC, cost=1.2, tokens=700.0, generation_s=3.5)), "suspect: tokens"),
    ],
)
def test_a_speedup_above_its_bound_is_an_error_that_names_the_suspect(
    arm: Run, suspect: str
) -> None:
    report = report_of(run_of(AR), arm)
    assert len(report.errors) == 1
    assert suspect in report.errors[0]
    assert "above the Amdahl bound" in report.errors[0]


def test_a_speedup_above_its_bound_within_the_interval_is_no_error() -> None:
    check = check_of(run_of(EAGLE, Truth(alpha=1.3, cost=1.0, noise=0.1), seed=3))
    assert check.step.high > check.bound.value
    assert not check.violation


def decided(report: Report, question: str) -> list[Decision]:
    return [d for d in report.decisions if d.question == question and d.source == "ours"]


def test_lengths_that_were_not_run_are_estimated_from_position_rates() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, SPEC))
    one, two, three = decided(report, WHICH_K)
    assert [row.basis for row in (one, two, three)] == ["estimated", "estimated", "measured"]
    assert [row.case for row in (one, two, three)] == [
        f"eagle3 k={k} dapo offline" for k in (1, 2, 3)
    ]
    assert one.acceptance.value == pytest.approx(1 + 1.6 / 3, rel=0.02)
    assert one.cost.value == pytest.approx(1 + 0.7 / 3, rel=0.05)
    assert three.step.value == pytest.approx(step_speedup(SPEC.share, 2.6 / 1.7), rel=0.03)
    assert one.step.low is None
    assert three.step.low < three.step.value < three.step.high
    assert three.text.startswith("use it: steps 1.2")


def test_the_acceptance_at_which_the_best_length_breaks_even_is_its_cost() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, SPEC))
    (row,) = decided(report, BREAK_EVEN)
    assert row.case == "eagle3 k=3 dapo offline"
    assert row.cost.value == pytest.approx(1.7, rel=0.04)
    assert row.cost.low < 1.7 < row.cost.high
    assert "above an acceptance length of 1." in row.text
    assert row.text.endswith("enough")


def test_a_draft_that_only_costs_is_advised_against() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, Truth(alpha=1.2, cost=2.4)))
    assert any(d.text.startswith("do not draft") for d in decided(report, WHICH_K))
    assert decided(report, BREAK_EVEN)[0].text.endswith("too little")


def test_lengths_of_asynchronous_arms_are_not_advised_on() -> None:
    lag = {"execution.max_lag": "1"}
    report = report_of(run_of({**AR, **lag}), run_of({**EAGLE, **lag}, SPEC))
    assert [check.label for check in report.checks if check.source == "ours"]
    assert decided(report, WHICH_K) == []


@pytest.mark.parametrize(
    ("cost_s", "words"), [(0.2, "it pays"), (3.0, "it does not pay"), (0.79, "cannot be told")]
)
def test_online_adaptation_is_weighed_against_its_own_cost(cost_s: float, words: str) -> None:
    # Acceptance from 2.6 to 3.0 makes generation 10 s * (1.7 / 2.6 - 1.7 / 3.0) = 0.87 s shorter.
    online = run_of(ONLINE, Truth(alpha=3.0, cost=1.7), seed=9)
    online = replace(online, steps=online.steps.assign(**{"time/draft_s": cost_s}))
    (row,) = decided(report_of(run_of(AR), run_of(EAGLE, SPEC), online), ONLINE_PAYS)
    assert words in row.text
    assert row.saved_s.value == pytest.approx(0.87 - cost_s, abs=0.25)
    assert row.saved_s.low < row.saved_s.value < row.saved_s.high


def test_a_draft_init_is_amortised_in_steps() -> None:
    run = run_of(EAGLE, SPEC)
    steps = run.steps.copy()
    steps.loc[0, "init/seconds"] = 100.0
    (row,) = decided(report_of(run_of(AR), replace(run, steps=steps)), INIT)
    saved = SPEC.step_s * (1 - 1 / step_speedup(SPEC.share, 2.6 / 1.7))
    assert row.paid_steps.value == pytest.approx(100 / saved, rel=0.1)
    assert row.paid_steps.low < 100 / saved < row.paid_steps.high
    assert row.saved_s.low < saved < row.saved_s.high
    assert row.text == "the init cost 100 s"


def test_an_init_of_a_draft_that_saves_nothing_never_pays() -> None:
    run = run_of(EAGLE, Truth(alpha=1.2, cost=2.0))
    steps = run.steps.assign(**{"init/seconds": 100.0})
    (row,) = decided(report_of(run_of(AR), replace(run, steps=steps)), INIT)
    assert "it never pays" in row.text
    assert row.paid_steps is None
