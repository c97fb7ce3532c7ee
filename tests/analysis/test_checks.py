"""The Amdahl check names what is suspect; advice follows from what was measured."""

from dataclasses import replace

import pytest
from synthetic import AR, EAGLE, Truth, run_of, untold, views_of

from analysis.compose import compose
from analysis.paper import load_paper
from analysis.records import AmdahlCheck, Report, Run
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


def test_the_bound_of_a_drafter_that_seldom_drafts_is_that_of_its_engine_steps() -> None:
    run = run_of(EAGLE, SPEC)
    steps = run.steps.assign(**{"spec/tokens_per_step": 1.1})
    check = check_of(replace(run, steps=steps))
    assert check.engine_bound.value == pytest.approx(step_speedup(SPEC.share, 1.1), rel=0.03)
    assert check.bound.value > check.engine_bound.value


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


def test_lengths_that_were_not_run_are_estimated_from_position_rates() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, SPEC))
    rows = {d.k: d for d in report.decisions if d.source == "ours"}
    assert [(k, rows[k].basis) for k in sorted(rows)] == [
        (1, "estimated"), (2, "estimated"), (3, "measured")
    ]  # fmt: skip
    assert rows[1].acceptance == pytest.approx(1 + 1.6 / 3, rel=0.02)
    assert rows[1].cost == pytest.approx(1 + 0.7 / 3, rel=0.05)
    assert rows[3].step == pytest.approx(step_speedup(SPEC.share, 2.6 / 1.7), rel=0.03)
    assert rows[3].break_even == rows[3].cost


def test_a_draft_that_only_costs_is_advised_against() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, Truth(alpha=1.2, cost=2.4)))
    texts = [a.text for a in report.advice if a.source == "ours"]
    assert any(text.startswith("do not draft") for text in texts)


@pytest.mark.parametrize(
    ("cost_s", "words"), [(0.2, "it pays"), (3.0, "it does not pay"), (0.79, "cannot be told")]
)
def test_online_adaptation_is_weighed_against_its_own_cost(cost_s: float, words: str) -> None:
    # Acceptance from 2.6 to 3.0 makes generation 10 s * (1.7 / 2.6 - 1.7 / 3.0) = 0.87 s shorter.
    online = run_of(ONLINE, Truth(alpha=3.0, cost=1.7), seed=9)
    online = replace(online, steps=online.steps.assign(**{"time/draft_s": cost_s}))
    advice = report_of(run_of(AR), run_of(EAGLE, SPEC), online).advice
    found = [a for a in advice if a.topic == "online adaptation" and a.source == "ours"]
    assert len(found) == 1
    assert words in found[0].text
    assert found[0].value == pytest.approx(0.87 - cost_s, abs=0.25)


def test_a_draft_init_is_amortised_in_steps() -> None:
    run = run_of(EAGLE, SPEC)
    steps = run.steps.copy()
    steps.loc[0, "init/seconds"] = 100.0
    advice = report_of(run_of(AR), replace(run, steps=steps)).advice
    found = next(a for a in advice if a.topic == "draft init" and a.source == "ours")
    saved = SPEC.step_s * (1 - 1 / step_speedup(SPEC.share, 2.6 / 1.7))
    assert found.value == pytest.approx(100 / saved, rel=0.1)
    assert "the init cost 100 s" in found.text


def test_an_init_of_a_draft_that_saves_nothing_never_pays() -> None:
    run = run_of(EAGLE, Truth(alpha=1.2, cost=2.0))
    steps = run.steps.assign(**{"init/seconds": 100.0})
    advice = report_of(run_of(AR), replace(run, steps=steps)).advice
    assert "it never pays" in next(a for a in advice if a.topic == "draft init").text
