"""The comparison of arms against the paper's Table 1 and hand-worked cases."""

import pytest

from specrl.algo.comparison import arm_of, figures, speedup_over
from specrl.errors import UserError

AR = {"data": 0.2, "prepare": 1.9, "generation": 100.0, "logprob": 17.8, "training": 31.3}
SPEC = {"data": 0.2, "prepare": 2.1, "generation": 56.6, "logprob": 18.1, "training": 30.5}


def step(stages: dict[str, float], tokens: float = 1000.0, **spec: float) -> dict[str, float]:
    times = {f"time/{name}_s": value for name, value in stages.items()}
    total = {"time/step_s": sum(stages.values()), "rollout/tokens": tokens}
    return {**times, **total, **{f"spec/{name}": value for name, value in spec.items()}}


def test_rl_zero_of_table_1_is_reproduced() -> None:
    baseline = arm_of("none", [step(AR)])
    arm = arm_of(
        "eagle3",
        [
            step(
                SPEC, acceptance_length=3.32, num_drafts=9, tokens_per_step=3.32, num_decode_steps=9
            )
        ],
    )
    gain = speedup_over(baseline, arm)
    assert gain.generation == pytest.approx(1.77, abs=0.005)
    assert gain.step == pytest.approx(1.41, abs=0.005)
    assert gain.step_per_token == pytest.approx(1.40, abs=0.005)
    assert gain.bound == pytest.approx(1.86, abs=0.005)
    assert gain.step_cost == pytest.approx(1.88, abs=0.005)
    assert gain.draft_cost == pytest.approx(1.88, abs=0.005)


def test_engine_steps_without_a_draft_lower_the_bound_and_not_alpha() -> None:
    spec = {
        "acceptance_length": 3.0,
        "num_drafts": 5,
        "tokens_per_step": 2.0,
        "num_decode_steps": 10,
    }
    half = {**AR, "generation": 50.0}
    gain = speedup_over(arm_of("none", [step(AR)]), arm_of("ngram", [step(half, **spec)]))
    assert gain.generation == pytest.approx(2.0)
    assert gain.step_cost == pytest.approx(1.0)
    assert gain.draft_cost == pytest.approx(1.5)
    assert gain.bound == pytest.approx(gain.step, abs=1e-6)


def test_generation_is_compared_per_token() -> None:
    longer = arm_of("ngram", [step(AR, tokens=2000.0)])
    assert speedup_over(arm_of("none", [step(AR)]), longer).generation == pytest.approx(2.0)


def test_the_first_step_is_warm_up_unless_it_is_the_only_one() -> None:
    slow = {**AR, "generation": 500.0}
    assert arm_of("none", [step(slow), step(AR)]).stage_s["generation"] == 100.0
    assert arm_of("none", [step(slow)]).stage_s["generation"] == 500.0


def test_acceptance_is_weighted_by_drafts() -> None:
    few = step(SPEC, acceptance_length=4.0, num_drafts=1, tokens_per_step=4.0, num_decode_steps=1)
    many = step(SPEC, acceptance_length=2.0, num_drafts=3, tokens_per_step=2.0, num_decode_steps=3)
    assert arm_of("x", [few, few, many]).acceptance_length == pytest.approx(2.5)


def test_an_autoregressive_arm_has_no_bound() -> None:
    baseline = arm_of("none", [step(AR)])
    itself = speedup_over(baseline, baseline)
    assert (itself.bound, itself.step_cost, itself.draft_cost) == (None, None, None)
    assert baseline.acceptance_length is None


def test_a_run_without_a_finished_step_is_named() -> None:
    with pytest.raises(UserError, match="none"):
        arm_of("none", [{"eval/accuracy": 0.5}])


def test_figures_leave_out_what_was_not_measured() -> None:
    baseline = arm_of("none", [step(AR)])
    alone = figures(baseline, None)
    assert (alone["generation_s"], alone["step_s"]) == (100.0, pytest.approx(151.2))
    assert not {"acceptance_length", "speedup_generation", "c_k"} & set(alone)
    arm = arm_of(
        "eagle3",
        [
            step(
                SPEC, acceptance_length=3.32, num_drafts=9, tokens_per_step=3.32, num_decode_steps=9
            )
        ],
    )
    shown = figures(arm, speedup_over(baseline, arm))
    assert shown["speedup_step"] == pytest.approx(1.41, abs=0.005)
    assert shown["amdahl_bound"] == pytest.approx(1.86, abs=0.005)
    assert shown["c_k"] == pytest.approx(1.88, abs=0.005)
