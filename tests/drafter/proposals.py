"""What a draft proposes after a sequence, one step after another and without a cache.

Legend: T slots, S slots so far, H hidden, A auxiliary layers, N query heads, G key/value heads, E
head dimension, D draft vocabulary, V vocabulary, K draft steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specrl.drafter.eagle3 import Eagle3


@dataclass(frozen=True)
class Proposal:
    """`token_ids_K` (the policy's ids) and the probabilities of each step."""

    token_ids_K: Tensor
    probs_KD: Tensor


@torch.no_grad()
def propose(
    draft: Eagle3,
    aux_TAH: Tensor,
    next_ids_T: Tensor,
    embedding_VH: Tensor,
    target_ids_D: Tensor,
    k: int,
    drafted: Sequence[int] | None = None,
    temperature: float = 1.0,
) -> Proposal:
    """Drafts `k` tokens after one sequence.

    `aux_TAH` are the states of its first T tokens, `next_ids_T` tokens 1 .. T; the draft starts
    after token T. Greedy, or along `drafted` (the policy's ids) where given.
    """
    embeds_TH, features_TH = embedding_VH[next_ids_T], draft.features(aux_TAH)
    token_ids, probs = [], []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    start = 0
    for step in range(k):
        positions_T = torch.arange(start, start + len(embeds_TH))
        query, key, value, residual = draft.project(embeds_TH, features_TH, positions_T)
        keys.append(key)
        values.append(value)
        attended = _attend(query, torch.cat(keys), torch.cat(values))
        last_H = draft.finish(attended, residual)[-1:]
        probs_D = (draft.lm_head(draft.norm(last_H))[0].float() / temperature).softmax(-1)
        best = int(target_ids_D[probs_D.argmax()])
        token_ids.append(best if drafted is None else drafted[step])
        probs.append(probs_D)
        start += len(embeds_TH)
        embeds_TH, features_TH = embedding_VH[token_ids[-1:]], last_H
    return Proposal(torch.tensor(token_ids), torch.stack(probs))


def _attend(query_TNE: Tensor, key_SGE: Tensor, value_SGE: Tensor) -> Tensor:
    """Causal, the T queries belonging to the last of S slots; [T, N, E]."""
    num_queries, num_heads, head_dim = query_TNE.shape
    num_keys, share = len(key_SGE), num_heads // key_SGE.shape[1]
    key_SNE = key_SGE.repeat_interleave(share, dim=1)
    value_SNE = value_SGE.repeat_interleave(share, dim=1)
    scores_NTS = torch.einsum("tne,sne->nts", query_TNE, key_SNE) / math.sqrt(head_dim)
    slots_T = torch.arange(num_keys - num_queries, num_keys)
    unseen_TS = torch.arange(num_keys)[None, :] > slots_T[:, None]
    weights_NTS = scores_NTS.masked_fill(unseen_TS, -torch.inf).softmax(-1)
    return torch.einsum("nts,sne->tne", weights_NTS, value_SNE)
