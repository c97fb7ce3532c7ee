"""Group advantages against hand-worked numbers."""

import pytest

from specrl.algo.advantages import group_advantages


def test_mean_advantages_subtract_the_mean_of_their_own_group():
    advantages = group_advantages([1.0, 0.0, 0.0, 0.0, 1.0, 0.5], [0, 0, 0, 0, 7, 7], "mean")
    assert advantages == pytest.approx([0.75, -0.25, -0.25, -0.25, 0.25, -0.25])


def test_zscore_advantages_divide_by_the_population_deviation():
    # mean 0.25, variance 3/16
    expected = [0.75 / 0.1875**0.5, *[-0.25 / 0.1875**0.5] * 3]
    assert group_advantages([1, 0, 0, 0], [3] * 4, "zscore") == pytest.approx(expected, rel=1e-5)


def test_groups_may_be_interleaved():
    assert group_advantages([1, 5, 3, 7], [0, 1, 0, 1], "mean") == [-1.0, -1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", ["mean", "zscore"])
def test_a_group_of_equal_rewards_gets_exactly_zero(kind):
    assert group_advantages([0.1] * 3 + [1.0], [0, 0, 0, 1], kind) == [0.0] * 4
