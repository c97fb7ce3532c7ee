"""Draft losses, acceptance and gradients against plain autograd over the whole vocabulary."""

import pytest
import torch
import torch.nn.functional as F

from specrl.algo import draft_losses
from specrl.algo.draft_losses import Teacher, fit_and_gradient_
from specrl.algo.nucleus import Nucleus
from specrl.config.drafter import DRAFT_LOSSES

STEPS, TOKENS, DRAFT, POLICY = 3, 11, 17, 40


def case(temperature, seed=0):
    """Draft logits, the policy's distribution, and the teacher made of it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(STEPS, TOKENS, DRAFT, generator=generator) * 2
    policy = torch.randn(TOKENS, POLICY, generator=generator) * 2
    came = torch.randint(0, POLICY, (TOKENS,), generator=generator)
    tokens = torch.where(came < DRAFT, came, -1)
    log_sum = (policy / temperature).logsumexp(1)
    teacher = Teacher(policy[:, :DRAFT].clone(), whole(log_sum), tokens, temperature)
    return logits, (policy / temperature).softmax(1)[:, :DRAFT], teacher


def whole(log_sum):
    """Nothing is cut off."""
    return Nucleus(torch.full_like(log_sum, -torch.inf), log_sum)


def plain_loss(name, logits, p, teacher):
    log_q = F.log_softmax(logits / teacher.temperature, -1)
    if name == "soft_ce":
        return -(p * log_q).sum(-1)
    if name == "tv":
        return 1 - torch.minimum(p.expand_as(log_q), log_q.exp()).sum(-1)
    picked = log_q.gather(-1, teacher.tokens_C.clamp(min=0).expand(STEPS, -1)[..., None])[..., 0]
    return torch.where(teacher.tokens_C >= 0, -picked, 0.0)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", DRAFT_LOSSES)
@pytest.mark.parametrize("cached_elements", [DRAFT * 4, 2**16])
def test_losses_and_gradients_are_those_of_autograd(
    name, temperature, cached_elements, monkeypatch
):
    monkeypatch.setattr(draft_losses, "CACHED_ELEMENTS", cached_elements)
    logits, p, teacher = case(temperature)
    weight = torch.rand(STEPS, TOKENS, generator=torch.Generator().manual_seed(1))
    weight[1, 3] = 0.0
    leaf = logits.clone().requires_grad_()
    plain = plain_loss(name, leaf, p, teacher)
    (plain * weight).sum().backward()
    fit = fit_and_gradient_(logits, teacher, weight, name)
    torch.testing.assert_close(fit.loss_SC, plain.detach())
    torch.testing.assert_close(logits, leaf.grad)
    assert (logits[1, 3] == 0).all()


def test_the_reachable_mass_is_the_policys_on_the_draft_vocabulary():
    logits, p, teacher = case(0.7)
    fit = fit_and_gradient_(logits, teacher, None, "soft_ce")
    torch.testing.assert_close(fit.reachable_C, p.sum(1))
    assert fit.reachable_C.max() < 1.0


def test_without_weights_the_logits_stay():
    logits, _, teacher = case(1.0)
    before = logits.clone()
    fit_and_gradient_(logits, teacher, None, "tv")
    assert torch.equal(logits, before)


def test_the_chance_of_a_sampled_draft_is_the_mean_over_tokens_that_come():
    # sum over x of p(x) min(1, q(x) / p(x)) over the draft vocabulary is sum min(p, q).
    logits, p, teacher = case(1.3)
    kept = torch.stack(
        [
            fit_and_gradient_(
                logits,
                Teacher(teacher.logits_CD, teacher.nucleus, torch.full((TOKENS,), x), 1.3),
                None,
                "tv",
            ).kept_SC
            for x in range(DRAFT)
        ],
        dim=-1,
    )
    fit = fit_and_gradient_(logits, teacher, None, "tv")
    torch.testing.assert_close((kept * p).sum(-1), fit.accept_SC)
    torch.testing.assert_close(1 - fit.loss_SC, fit.accept_SC)
    assert (fit.kept_SC[:, teacher.tokens_C < 0] == 0).all()


def test_a_greedy_draft_is_kept_where_its_best_token_came():
    logits, p, teacher = case(1.0)
    fit = fit_and_gradient_(logits, teacher, None, "soft_ce", greedy=True)
    best = logits.argmax(-1)
    assert torch.equal(fit.kept_SC, (best == teacher.tokens_C).float())
    picked = p.expand(STEPS, -1, -1).gather(-1, best[..., None])[..., 0]
    torch.testing.assert_close(fit.accept_SC, picked)


def test_bf16_logits_give_the_gradient_of_fp32_ones_rounded():
    logits, _, teacher = case(1.0)
    rounded = logits.bfloat16()
    exact = rounded.float()
    weight = torch.ones(STEPS, TOKENS)
    fit_and_gradient_(rounded, teacher, weight, "soft_ce")
    fit_and_gradient_(exact, teacher, weight, "soft_ce")
    torch.testing.assert_close(rounded, exact.bfloat16())
