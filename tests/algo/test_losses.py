"""The GRPO loss against hand-worked numbers."""

import math

import pytest
import torch

from specrl.algo.losses import (
    Objective,
    PolicyTokens,
    grpo_loss,
    importance_weights,
    kl_k3,
    token_weights,
)

OBJECTIVE = Objective(clip_low=0.2, clip_high=0.28)


def tokens(advantages, weights=None, behaviour=None, rollout=None, reference=None):
    count = len(advantages)
    zeros = [0.0] * count
    return PolicyTokens(
        torch.tensor(advantages),
        torch.tensor(weights or [1.0 / count] * count),
        torch.tensor(behaviour or zeros),
        torch.tensor(rollout or zeros),
        None if reference is None else torch.tensor(reference),
    )


def loss_and_slope(ratios, facts, objective=OBJECTIVE):
    logprobs = torch.tensor([math.log(ratio) for ratio in ratios]).requires_grad_()
    loss, sums = grpo_loss(logprobs, facts, objective)
    loss.backward()
    return loss.item(), logprobs.grad.tolist(), sums


def test_the_clip_is_asymmetric_and_stops_the_gradient_only_where_it_helps():
    # Ratios 1.5 and 0.5 with advantages of both signs: -min(r A, clip(r) A), each weighted 1/4.
    facts = tokens([1.0, -1.0, 1.0, -1.0])
    loss, slope, sums = loss_and_slope([1.5, 1.5, 0.5, 0.5], facts)
    assert loss == pytest.approx((-1.28 + 1.5 - 0.5 + 0.8) / 4)
    assert slope == pytest.approx([0.0, 1.5 / 4, -0.5 / 4, 0.0])
    assert sums["clipped"] == 2
    assert sums["ratio"] == pytest.approx(4.0)


def test_on_policy_gradient_is_minus_advantage_times_weight():
    _, slope, _ = loss_and_slope([1.0, 1.0], tokens([2.0, -3.0], weights=[0.1, 0.2]))
    assert slope == pytest.approx([-0.2, 0.6])


def test_token_weights_average_over_all_tokens():
    assert token_weights([1, 3], "token", total_tokens=8, total_sequences=4) == [1 / 8, 1 / 8]


def test_sequence_weights_average_the_token_means_of_all_responses():
    weights = token_weights([1, 3], "sequence", total_tokens=8, total_sequences=4)
    assert weights == pytest.approx([1 / 4, 1 / 12])


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_parts_with_global_denominators_add_up_to_the_whole(aggregation):
    lengths, advantages = [2, 3, 1], [0.5, -1.0, 2.0]
    weights = token_weights(lengths, aggregation, 6, 3)
    spread = [w for w, n in zip(weights, lengths, strict=True) for _ in range(n)]
    signs = [a for a, n in zip(advantages, lengths, strict=True) for _ in range(n)]
    logprobs = torch.linspace(-0.4, 0.4, 6)
    facts = tokens(signs, spread)
    whole, _ = grpo_loss(logprobs, facts, OBJECTIVE)
    parts = [slice(0, 2), slice(2, 6)]
    summed = sum(grpo_loss(logprobs[p], facts.part(p), OBJECTIVE)[0] for p in parts)
    assert summed.item() == pytest.approx(whole.item(), abs=1e-6)


def test_importance_weights_are_truncated_and_carry_no_gradient():
    behaviour = torch.tensor([-1.0, -1.0, -2.0]).requires_grad_()
    weights = importance_weights(behaviour, torch.tensor([-1.0, -3.0, -1.5]), cap=2.0)
    assert weights.tolist() == pytest.approx([1.0, 2.0, math.exp(-0.5)])
    assert not weights.requires_grad
    assert importance_weights(behaviour, behaviour.detach() - 5, cap=None).tolist() == [1, 1, 1]


def test_the_importance_weight_multiplies_the_policy_term():
    facts = tokens([1.0, 1.0], rollout=[-math.log(4.0), 0.0])
    loss, slope, sums = loss_and_slope([1.0, 1.0], facts, Objective(0.2, 0.28, truncated_is=3.0))
    assert loss == pytest.approx(-(3.0 + 1.0) / 2)
    assert slope == pytest.approx([-1.5, -0.5])
    assert sums["importance"] == pytest.approx(4.0)


def test_k3_is_zero_for_equal_policies_and_matches_its_formula():
    kl = kl_k3(torch.tensor([-1.0, -1.0]), torch.tensor([-1.0, -1.5]))
    assert kl.tolist() == pytest.approx([0.0, math.exp(-0.5) + 0.5 - 1.0])


def test_the_kl_term_pulls_towards_the_reference():
    facts = tokens([0.0], reference=[1.0])
    loss, slope, sums = loss_and_slope([1.0], facts, Objective(0.2, 0.28, kl_coef=0.5))
    assert loss == pytest.approx(0.5 * (math.e - 2.0), rel=1e-5)
    assert slope == pytest.approx([0.5 * (1.0 - math.e)], rel=1e-5)
    assert sums["kl"] == pytest.approx(math.e - 2.0, rel=1e-5)
