"""The draft vocabulary in a checkpoint: `d2t` are offsets from draft ids to the policy's ids.

Legend: D draft vocabulary, V vocabulary of the policy.
"""

from collections.abc import Mapping

import torch
import xxhash
from torch import Tensor

D2T, T2D = "d2t", "t2d"
OUTSIDE = -1  # draft id of a token that the draft cannot propose


def target_ids_of(tensors: Mapping[str, Tensor], draft_vocab: int) -> Tensor:
    """The policy's id of every draft token, int64 [D]; without `d2t` they are the same."""
    ids_D = torch.arange(draft_vocab)
    return ids_D + tensors[D2T].long().cpu() if D2T in tensors else ids_D


def d2t_of(target_ids_D: Tensor) -> Tensor:
    """What to add to a draft id, int64 [D]."""
    return target_ids_D.long() - torch.arange(len(target_ids_D))


def t2d_of(target_ids_D: Tensor, vocab: int) -> Tensor:
    """Whether a token of the policy can be drafted, bool [V]."""
    return torch.zeros(vocab, dtype=torch.bool).scatter_(0, target_ids_D, True)


def draft_ids_of(target_ids_D: Tensor, vocab: int) -> Tensor:
    """The draft id of every token of the policy, int64 [V]; `OUTSIDE` where it has none."""
    ids_D = torch.arange(len(target_ids_D), device=target_ids_D.device)
    ids_V = torch.full((vocab,), OUTSIDE, device=target_ids_D.device)
    return ids_V.scatter_(0, target_ids_D, ids_D)


def vocabulary_digest(target_ids_D: Tensor) -> str:
    """xxh3-64 of `d2t`, in hex."""
    return xxhash.xxh3_64_hexdigest(d2t_of(target_ids_D).numpy().tobytes())
