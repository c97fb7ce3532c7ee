"""Amdahl's law against the numbers the paper prints (arXiv:2604.26779, Tables 1 and 2)."""

import pytest

from specrl.algo.amdahl import step_speedup, verification_cost
from specrl.errors import UserError

RL_THINK = {"share": 133.6 / 185.3, "generation": 133.6 / 87.0, "alpha": 2.77}
RL_ZERO = {"share": 100.0 / 151.2, "generation": 100.0 / 56.6, "alpha": 3.32}


def test_the_bound_is_1_85_for_rl_think_and_1_86_for_rl_zero() -> None:
    assert step_speedup(RL_THINK["share"], RL_THINK["alpha"]) == pytest.approx(1.854, abs=0.001)
    assert step_speedup(RL_ZERO["share"], RL_ZERO["alpha"]) == pytest.approx(1.86, abs=0.005)


def test_the_measured_generation_speedup_predicts_the_step_speedup() -> None:
    assert step_speedup(RL_THINK["share"], RL_THINK["generation"]) == pytest.approx(1.34, abs=0.005)
    assert step_speedup(RL_ZERO["share"], RL_ZERO["generation"]) == pytest.approx(1.40, abs=0.005)


def test_c_of_k_is_alpha_over_speedup() -> None:
    assert verification_cost(3.32, 1.77) == pytest.approx(1.88, abs=0.005)
    assert verification_cost(4.35, 1.44) == pytest.approx(3.02, abs=0.005)
    assert verification_cost(5.06, 1.21) == pytest.approx(4.18, abs=0.005)


def test_limits() -> None:
    assert step_speedup(0.0, 3.0) == 1.0
    assert step_speedup(1.0, 3.0) == pytest.approx(3.0)
    assert step_speedup(0.5, 0.5) < 1.0


@pytest.mark.parametrize(("share", "speedup"), [(-0.1, 2.0), (1.1, 2.0), (0.5, 0.0)])
def test_impossible_inputs_are_refused(share: float, speedup: float) -> None:
    with pytest.raises(UserError):
        step_speedup(share, speedup)
