"""Verification of draft tokens: which are kept, and what follows them.

Exact: whatever the draft proposed, the tokens follow the target's distribution. Token by token as
in arXiv:2211.17192, or jointly as in arXiv:2403.10444.

Legend: B requests, K longest draft, T draft tokens of all requests, N rows of logits (a request's
draft positions in order, then the one behind them), V vocabulary, D draft vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

NO_TOKEN = -1

SampleRows = Callable[[torch.Tensor], torch.Tensor]
"""One token per row of log-probabilities up to a constant, -inf allowed."""


@dataclass(frozen=True)
class Drafts:
    """Draft tokens of a batch, `counts` [B] of them for each request; ids below 0 are padding.

    `probs_TD` are the probabilities they were drawn from, over the ids `vocabulary_D` (None: all
    of the target's). None: drafts of unknown origin, which is exact too.
    """

    ids_T: torch.Tensor
    counts: Sequence[int]
    probs_TD: torch.Tensor | None = None
    vocabulary_D: torch.Tensor | None = None


@dataclass(frozen=True)
class Verified:
    """Tokens per request, NO_TOKEN behind the last, with their log-probs (whatever there)."""

    tokens_BK: torch.Tensor
    logprobs_BK: torch.Tensor


@dataclass(frozen=True)
class _Rows:
    """Where each request's drafts and logits are."""

    ids_BK: torch.Tensor
    usable_BK: torch.Tensor
    draft_BK: torch.Tensor
    logit_BK: torch.Tensor
    first_B: torch.Tensor


@dataclass(frozen=True)
class _Kept:
    """Draft tokens kept per request, and what the target counts for in the residual (1 = all)."""

    num_B: torch.Tensor
    scale_B: torch.Tensor


def verify(
    logprobs_NV: torch.Tensor,
    drafts: Drafts,
    sample: SampleRows,
    greedy_B: torch.Tensor | None = None,
    block: bool = False,
) -> Verified:
    """The kept draft tokens of each request and one more token.

    `logprobs_NV` are the target's fp32 log-probs, temperature and top_p applied. Requests of
    `greedy_B` (None: no one) take the most likely token at each position. `block` needs draft
    probabilities: without them tokens are verified one by one.
    """
    rows = _rows(drafts)
    if not len(drafts.ids_T):
        return _undrafted(logprobs_NV, rows, sample, greedy_B)
    kept = _kept(logprobs_NV, drafts, rows, block)
    if greedy_B is not None:
        kept = _with_greedy(kept, logprobs_NV, rows, greedy_B)
    last_B = rows.first_B + kept.num_B
    scores_BV = logprobs_NV[last_B]
    rejected_R = (kept.num_B < rows.usable_BK.sum(1)).nonzero()[:, 0]
    if greedy_B is not None:
        rejected_R = rejected_R[~greedy_B[rejected_R]]
    if len(rejected_R):
        _leave_residual(scores_BV, drafts, rows, kept, rejected_R)
    next_B = _sampled(scores_BV, logprobs_NV, last_B, sample)
    if greedy_B is not None:
        next_B = torch.where(greedy_B, scores_BV.argmax(-1), next_B)
    return _verified(logprobs_NV, rows, kept.num_B, next_B)


def _undrafted(
    logprobs_BV: torch.Tensor, rows: _Rows, sample: SampleRows, greedy_B: torch.Tensor | None
) -> Verified:
    next_B = sample(logprobs_BV)
    if greedy_B is not None:
        next_B = torch.where(greedy_B, logprobs_BV.argmax(-1), next_B)
    return _verified(logprobs_BV, rows, torch.zeros_like(next_B), next_B)


def _rows(drafts: Drafts) -> _Rows:
    counts_B = torch.tensor(drafts.counts)
    position_K = torch.arange(max(drafts.counts, default=0))
    there_BK = position_K < counts_B[:, None]
    ids_BK = torch.full(there_BK.shape, NO_TOKEN)
    ids_BK[there_BK] = drafts.ids_T.long()
    usable_BK = (ids_BK >= 0).cummin(1).values if len(position_K) else ids_BK >= 0
    start_B = counts_B.cumsum(0) - counts_B
    first_B = start_B + torch.arange(len(counts_B))
    inside_BK = torch.where(there_BK, position_K, 0)
    return _Rows(
        ids_BK=ids_BK.clamp(min=0),
        usable_BK=usable_BK,
        draft_BK=(start_B[:, None] + inside_BK).clamp(max=max(len(drafts.ids_T) - 1, 0)),
        logit_BK=first_B[:, None] + inside_BK,
        first_B=first_B,
    )


def _kept(logprobs_NV: torch.Tensor, drafts: Drafts, rows: _Rows, block: bool) -> _Kept:
    # Double precision: a product of ratios near 1, and draws that are never exactly 1.
    target_BK = logprobs_NV[rows.logit_BK, rows.ids_BK].double().exp()
    draft_BK = _draft_probabilities(drafts, rows)
    draws_BK = torch.rand(target_BK.shape, dtype=torch.float64)
    if block and drafts.probs_TD is not None:
        return _kept_jointly(logprobs_NV, drafts, rows, target_BK / draft_BK, draws_BK)
    accepted_BK = (draws_BK * draft_BK < target_BK) & rows.usable_BK
    num_B = _leading(accepted_BK)
    return _Kept(num_B, torch.ones(len(num_B)))


def _leading(accepted_BK: torch.Tensor) -> torch.Tensor:
    return accepted_BK.long().cumprod(1).sum(1)


def _draft_probabilities(drafts: Drafts, rows: _Rows) -> torch.Tensor:
    """Of the draft tokens themselves; 1 where they are not known."""
    if drafts.probs_TD is None or not len(drafts.ids_T):
        return torch.ones(rows.ids_BK.shape, dtype=torch.float64)
    column_BK = rows.ids_BK
    if drafts.vocabulary_D is not None:
        width = int(drafts.vocabulary_D.max()) + 1
        column_V = torch.zeros(width, dtype=torch.int64)
        column_V[drafts.vocabulary_D] = torch.arange(len(drafts.vocabulary_D))
        column_BK = column_V[rows.ids_BK.clamp(max=width - 1)]
    return drafts.probs_TD[rows.draft_BK, column_BK].double()


def _kept_jointly(
    logprobs_NV: torch.Tensor,
    drafts: Drafts,
    rows: _Rows,
    ratio_BK: torch.Tensor,
    draws_BK: torch.Tensor,
) -> _Kept:
    """Block verification: the longest prefix that its own draw accepts (arXiv:2403.10444, 2)."""
    num_B = torch.zeros(len(ratio_BK), dtype=torch.int64)
    weight_B = torch.ones(len(ratio_BK), dtype=torch.float64)
    scale_B = weight_B
    for k in range(ratio_BK.shape[1]):
        weight_B = (weight_B * ratio_BK[:, k]).clamp(max=1.0)
        accept_B = weight_B
        if k + 1 < ratio_BK.shape[1]:
            surplus_B = _surplus(logprobs_NV, drafts, rows, k + 1, weight_B)
            total_B = surplus_B + 1 - weight_B
            # No surplus at weight 1: target and draft agree, nothing there is ever rejected.
            inner_B = torch.where(total_B > 0, surplus_B / total_B, 1.0)
            accept_B = torch.where(rows.usable_BK[:, k + 1], inner_B, weight_B)
        taken_B = (draws_BK[:, k] < accept_B) & rows.usable_BK[:, k]
        num_B = torch.where(taken_B, k + 1, num_B)
        scale_B = torch.where(taken_B, weight_B, scale_B)
    return _Kept(num_B, scale_B.float())


def _surplus(
    logprobs_NV: torch.Tensor, drafts: Drafts, rows: _Rows, k: int, weight_B: torch.Tensor
) -> torch.Tensor:
    """Sum over the vocabulary of max(weight * target - draft, 0) at position k."""
    assert drafts.probs_TD is not None
    draft_BD = drafts.probs_TD[rows.draft_BK[:, k]]
    target_BD = _columns(logprobs_NV, rows.logit_BK[:, k], drafts.vocabulary_D).exp()
    weight_B1 = weight_B[:, None].float()
    inside_B = (weight_B1 * target_BD - draft_BD).clamp_(min=0).sum(-1, dtype=torch.float64)
    if drafts.vocabulary_D is None:
        return inside_B
    outside_B = (1 - target_BD.sum(-1, dtype=torch.float64)).clamp(min=0)
    return inside_B + weight_B * outside_B


def _columns(
    values_NV: torch.Tensor, row_R: torch.Tensor, vocabulary_D: torch.Tensor | None
) -> torch.Tensor:
    if vocabulary_D is None:
        return values_NV[row_R]
    return values_NV[row_R[:, None], vocabulary_D]


def _with_greedy(
    kept: _Kept, logprobs_NV: torch.Tensor, rows: _Rows, greedy_B: torch.Tensor
) -> _Kept:
    best_BK = logprobs_NV.argmax(-1)[rows.logit_BK]
    num_B = _leading((best_BK == rows.ids_BK) & rows.usable_BK)
    return _Kept(torch.where(greedy_B, num_B, kept.num_B), kept.scale_B)


def _leave_residual(
    scores_BV: torch.Tensor, drafts: Drafts, rows: _Rows, kept: _Kept, rejected_R: torch.Tensor
) -> None:
    """Takes the draft's part out of the rejected requests' next distribution, in place."""
    at_R = kept.num_B[rejected_R]
    if drafts.probs_TD is None:
        scores_BV[rejected_R, rows.ids_BK[rejected_R, at_R]] = -torch.inf
        return
    draft_RD = drafts.probs_TD[rows.draft_BK[rejected_R, at_R]]
    scale_R1 = kept.scale_B[rejected_R, None]
    target_RD = _columns(scores_BV, rejected_R, drafts.vocabulary_D).exp_()
    left_RD = target_RD.mul_(scale_R1).sub_(draft_RD).clamp_(min=0).log_()
    # Relative to the scale, so that what the draft cannot propose stays as it is.
    left_RD -= scale_R1.log()
    if drafts.vocabulary_D is None:
        scores_BV[rejected_R] = left_RD
    else:
        scores_BV[rejected_R[:, None], drafts.vocabulary_D] = left_RD


def _sampled(
    scores_BV: torch.Tensor, logprobs_NV: torch.Tensor, last_B: torch.Tensor, sample: SampleRows
) -> torch.Tensor:
    """A residual of nothing, which only rounding leaves, is the target's own distribution."""
    next_B = sample(scores_BV)
    empty_R = scores_BV.gather(1, next_B[:, None])[:, 0].isneginf().nonzero()[:, 0]
    if len(empty_R):
        next_B[empty_R] = sample(logprobs_NV[last_B[empty_R]])
    return next_B


def _verified(
    logprobs_NV: torch.Tensor, rows: _Rows, num_B: torch.Tensor, next_B: torch.Tensor
) -> Verified:
    position_K = torch.arange(rows.ids_BK.shape[1] + 1)
    kept_BK = torch.nn.functional.pad(rows.ids_BK, (0, 1))
    tokens_BK = torch.where(position_K < num_B[:, None], kept_BK, NO_TOKEN)
    tokens_BK = tokens_BK.scatter(1, num_B[:, None], next_B[:, None])
    row_BK = rows.first_B[:, None] + torch.minimum(position_K, num_B[:, None])
    return Verified(tokens_BK, logprobs_NV[row_BK, tokens_BK.clamp(min=0)])
