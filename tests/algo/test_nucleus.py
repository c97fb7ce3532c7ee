"""The nucleus, and what a draft learns and counts against it."""

import pytest
import torch

from specrl.algo.draft_losses import Teacher, fit_and_gradient_
from specrl.algo.nucleus import FEW, nucleus
from specrl.rollout.verification import Drafts, verify

TOKENS, POLICY, DRAFT, TOP_P, TEMPERATURE = 6, 8, 5, 0.6, 0.7


def truncated(logits, top_p):
    """Probabilities of one token, by hand: the likeliest tokens until they hold top_p."""
    probabilities = logits.double().softmax(0).tolist()
    kept, mass = [], 0.0
    for token in sorted(range(len(probabilities)), key=lambda t: -probabilities[t]):
        if mass < top_p:
            kept.append(token)
            mass += probabilities[token]
    return torch.tensor([p / mass if t in kept else 0.0 for t, p in enumerate(probabilities)])


def case(draft=DRAFT, seed=0):
    """The policy's logits / temperature, its truncated distribution, and the teacher of a draft."""
    policy = torch.randn(TOKENS, POLICY, generator=torch.Generator().manual_seed(seed)) * 1.5
    scaled = policy / TEMPERATURE
    p = torch.stack([truncated(row, TOP_P) for row in scaled])
    came = torch.zeros(TOKENS, dtype=torch.int64)
    return scaled, p, Teacher(policy[:, :draft], nucleus(scaled, TOP_P), came, TEMPERATURE)


def test_the_teacher_is_the_policy_truncated_and_renormalised():
    _, p, teacher = case()
    torch.testing.assert_close(teacher.probabilities(slice(TOKENS)), p[:, :DRAFT])
    fit = fit_and_gradient_(torch.zeros(1, TOKENS, DRAFT), teacher, None, "soft_ce")
    torch.testing.assert_close(fit.reachable_C, p[:, :DRAFT].sum(1))
    assert 0 < (p > 0).sum() < p.numel() / 2


@pytest.mark.parametrize(
    ("logits", "top_p", "kept"),
    [
        ([5.0, 1.0, 0.0], 0.5, 1),
        ([1.0, 1.0, 1.0, 0.0], 0.3, 3),  # which of them an engine drops is its own affair
        ([1.0, 0.0], 0.999, 2),
        ([0.0, -torch.inf, -torch.inf], 0.9, 1),
    ],
)
def test_one_token_ties_and_all_tokens(logits, top_p, kept):
    scaled = torch.tensor([logits])
    found = nucleus(scaled, top_p)
    within = scaled >= found.cutoff_C[:, None]
    assert (within & scaled.isfinite()).sum() == kept
    assert found.log_sum_C.item() == pytest.approx(scaled[within].logsumexp(0).item())


def test_a_nucleus_of_many_tokens_is_found_too():
    scaled = torch.linspace(0.0, 1.0, 4 * FEW)[None].repeat(2, 1)
    scaled[1, 7] = 20.0  # beside a row that one token holds
    found = nucleus(scaled, 0.9)
    expected = [(truncated(row, 0.9) > 0).sum() for row in scaled]
    assert (scaled >= found.cutoff_C[:, None]).sum(1).tolist() == [int(n) for n in expected]
    assert expected[0] > 2 * FEW
    assert expected[1] == 1


def test_the_cutoff_parts_the_same_tokens_after_other_rounding():
    scaled, p, _ = case()
    cutoff = nucleus(scaled, TOP_P).cutoff_C[:, None]
    for shift in (-1e-3, 1e-3):
        assert torch.equal(scaled + shift >= cutoff, p > 0)


@pytest.mark.parametrize("loss", ["soft_ce", "tv"])
def test_the_loss_is_least_at_the_truncated_distribution(loss):
    scaled, p, teacher = case(draft=POLICY)
    best = (p.log() * TEMPERATURE).clamp(min=-60.0)
    least, slope = best.clone()[None], torch.ones(1, TOKENS)
    losses = fit_and_gradient_(least, teacher, slope, loss).loss_SC
    if loss == "soft_ce":  # the other has an edge there
        assert least.abs().max() < 1e-5  # the gradient
    several = (p > 0).sum(1) > 1  # a certain token stays certain
    whole = (scaled * TEMPERATURE)[None]
    generator = torch.Generator().manual_seed(1)
    others = [best[None] + torch.randn(TOKENS, POLICY, generator=generator) for _ in range(5)]
    for other in (whole, *others):
        there = fit_and_gradient_(other.clone(), teacher, None, loss).loss_SC
        assert (there > losses - 1e-6).all()
        assert (there[:, several] > losses[:, several] + 1e-3).all()
    assert several.any()


def test_replay_keeps_drafts_as_often_as_the_engines_own_rule():
    torch.manual_seed(0)
    scaled, p, teacher = case(draft=POLICY)
    draft = torch.randn(TOKENS, POLICY)
    q = (draft / TEMPERATURE).softmax(1)
    fit = fit_and_gradient_(draft.clone()[None], teacher, None, "tv")
    times = 20_000
    for token in range(TOKENS):
        target = torch.where(p[token] > 0, scaled[token], -torch.inf).log_softmax(0)
        drawn = torch.multinomial(q[token], times, replacement=True)
        drafts = Drafts(drawn, [1] * times, q[token].expand(times, -1))
        rows = target.expand(2 * times, -1)
        verified = verify(rows, drafts, lambda x: torch.multinomial(x.exp(), 1)[:, 0])
        kept = (verified.tokens_BK[:, 1] >= 0).float().mean()
        assert kept == pytest.approx(fit.accept_SC[0, token].item(), abs=0.015)
        came = verified.tokens_BK[:, 0].bincount(minlength=POLICY) / times
        torch.testing.assert_close(came, p[token].float(), atol=0.015, rtol=0)
