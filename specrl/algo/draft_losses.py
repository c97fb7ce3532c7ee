"""Losses of a draft against the policy, with their gradients, over a few rows at a time.

The policy's distribution p is what drafts are verified against: at the rollout's temperature, its
nucleus alone. Over the draft vocabulary it is not renormalised: what it sums to is the mass that
the draft can reach. q is the draft's softmax over its vocabulary at that temperature. Gradients
take the place of the logits, so no fp32 copy of them is ever whole.

Legend: C tokens that are predicted, S draft steps, D draft vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specrl.algo.nucleus import Nucleus

CACHED_ELEMENTS = 2**16  # of one fp32 array at once: a few such arrays stay in a CPU's L2 cache


@dataclass(frozen=True)
class Teacher:
    """The policy at C tokens: logits over the draft vocabulary, the nucleus over its own.

    `logits_CD` are not divided by `temperature`, `nucleus` is of logits / temperature. `tokens_C`
    are the draft ids of the tokens that came, negative outside the draft vocabulary.
    """

    logits_CD: Tensor
    nucleus: Nucleus
    tokens_C: Tensor
    temperature: float

    def probabilities(self, part: slice) -> Tensor:
        """Over the draft vocabulary, of the tokens of `part`."""
        scaled = self.logits_CD[part].to(torch.float32, copy=True).div_(self.temperature)
        nucleus = self.nucleus.of(part)
        if bool(nucleus.cutoff_C.isfinite().any()):  # else a seventh of the loss's time for nothing
            scaled.masked_fill_(scaled < nucleus.cutoff_C[:, None], -torch.inf)
        return scaled.sub_(nucleus.log_sum_C[:, None]).exp_()


@dataclass(frozen=True)
class DraftFit:
    """Per draft step and token, fp32.

    `accept_SC` is the chance that the draft token is accepted whatever comes, `kept_SC` the same
    given the token that came; `reachable_C` the mass of p on the draft vocabulary.
    """

    loss_SC: Tensor
    accept_SC: Tensor
    kept_SC: Tensor
    reachable_C: Tensor


def fit_and_gradient_(
    logits_SCD: Tensor, teacher: Teacher, weight_SC: Tensor | None, loss: str, greedy: bool = False
) -> DraftFit:
    """Losses per token, and `logits_SCD` replaced by d sum(weight * loss) / d logits.

    `loss` is one of `config.drafter.DRAFT_LOSSES`. "soft_ce": -sum p log q; "tv": 1 - sum
    min(p, q), the rejection rate of drafting from q (arXiv:2211.17192); "hard_ce": -log q of the
    token that came, 0 outside the draft vocabulary. `weight_SC` None leaves the logits as they
    are. `greedy` drafts propose q's best token, others a sample of q: that decides acceptance, not
    the loss.
    """
    steps, count, size = logits_SCD.shape
    loss_SC, accept_SC, kept_SC = torch.zeros(3, steps, count, device=logits_SCD.device).unbind()
    reachable_C = torch.zeros(count, device=logits_SCD.device)
    rows = max(1, CACHED_ELEMENTS // size) if logits_SCD.device.type == "cpu" else max(count, 1)
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        p = teacher.probabilities(part)
        reachable_C[part] = p.sum(1)
        tokens = teacher.tokens_C[part]
        for step in range(steps):
            raw = logits_SCD[step, part]
            log_q = _log_softmax(raw, teacher.temperature)
            q = log_q.exp()
            losses, gradient = _LOSSES[loss](p, q, log_q, tokens, reachable_C[part])
            accept, kept = (_greedy if greedy else _sampled)(p, q, tokens)
            loss_SC[step, part], accept_SC[step, part], kept_SC[step, part] = losses, accept, kept
            if weight_SC is not None:
                slope = weight_SC[step, part, None] / teacher.temperature
                raw.copy_(gradient().mul_(slope))
    return DraftFit(loss_SC, accept_SC, kept_SC, reachable_C)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 1.0:
        return torch.log_softmax(logits, -1, dtype=torch.float32)
    return torch.log_softmax(logits.float() / temperature, -1)


def _soft_ce(
    p: Tensor, q: Tensor, log_q: Tensor, _tokens: Tensor, reachable: Tensor
) -> tuple[Tensor, Callable[[], Tensor]]:
    losses = torch.linalg.vecdot(p, log_q).neg_()
    return losses, lambda: torch.addcmul(-p, q, reachable[:, None])


def _tv(
    p: Tensor, q: Tensor, _log_q: Tensor, _tokens: Tensor, _reachable: Tensor
) -> tuple[Tensor, Callable[[], Tensor]]:
    def gradient() -> Tensor:
        below = (q < p).float().mul_(q)  # where more of q gives more acceptance
        return torch.addcmul(-below, q, below.sum(1, keepdim=True))

    return 1.0 - torch.minimum(p, q).sum(1), gradient


def _hard_ce(
    _p: Tensor, q: Tensor, log_q: Tensor, tokens: Tensor, _reachable: Tensor
) -> tuple[Tensor, Callable[[], Tensor]]:
    known = tokens >= 0
    index = tokens.clamp(min=0)[:, None]

    def gradient() -> Tensor:
        whole = q * known[:, None]
        return whole.scatter_add_(1, index, -known[:, None].float())

    return -log_q.gather(1, index)[:, 0] * known, gradient


_LOSSES = {"soft_ce": _soft_ce, "tv": _tv, "hard_ce": _hard_ce}


def _sampled(p: Tensor, q: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Acceptance and its share given the token that came, of a draft that samples from q."""
    index = tokens.clamp(min=0)[:, None]
    p_token, q_token = p.gather(1, index)[:, 0], q.gather(1, index)[:, 0]
    smallest = torch.finfo(p.dtype).tiny  # a token that came has p > 0, but maybe not in fp32
    kept = (q_token / p_token.clamp(min=smallest)).clamp(max=1.0) * (tokens >= 0)
    return torch.minimum(p, q).sum(1), kept


def _greedy(p: Tensor, q: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a draft that proposes q's best token."""
    best = q.argmax(1)
    return p.gather(1, best[:, None])[:, 0], (best == tokens).float()
