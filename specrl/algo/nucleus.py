"""The nucleus of a distribution: the tokens that top_p leaves (arXiv:1904.09751).

Legend: C tokens that are predicted, V vocabulary, N of the likeliest of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FEW = 1024  # tokens that hold nearly every nucleus: a tenth of the time of a sort of them all


@dataclass(frozen=True)
class Nucleus:
    """fp32: the logit below which nothing is sampled, and log-sum-exp of the logits above it.

    The cutoff lies midway between the last logit within and the first one outside, so that it
    parts the same tokens when the logits are computed again and rounded otherwise.
    """

    cutoff_C: Tensor
    log_sum_C: Tensor

    def of(self, part: Tensor | slice) -> "Nucleus":
        """Of some of the tokens."""
        return Nucleus(self.cutoff_C[part], self.log_sum_C[part])


def nucleus(scaled_CV: Tensor, top_p: float) -> Nucleus:
    """The fewest most likely tokens that hold `top_p` of the mass, with all that tie with the last.

    `scaled_CV` are fp32 logits / temperature over the whole vocabulary.
    """
    width = scaled_CV.shape[1]
    sum_C1 = scaled_CV.logsumexp(1, keepdim=True)
    for candidates in (min(FEW, width), width):
        likeliest_CN = scaled_CV.topk(candidates).values
        mass_CN = (likeliest_CN - sum_C1).exp()
        within_CN = mass_CN.cumsum(1) - mass_CN < top_p
        if not bool(within_CN[:, -1].any()):
            break
    last_C1 = within_CN.sum(1, keepdim=True) - 1
    lowest_C1 = likeliest_CN.gather(1, last_C1)
    next_C1 = likeliest_CN.gather(1, (last_C1 + 1).clamp(max=candidates - 1))
    cutoff_C1 = (lowest_C1 + next_C1) / 2
    log_sum_C = scaled_CV.masked_fill(scaled_CV < cutoff_C1, -torch.inf).logsumexp(1)
    return Nucleus(cutoff_C1[:, 0], log_sum_C)


def joined(parts: Sequence[Nucleus]) -> Nucleus:
    """Of the tokens of all parts, in order."""
    return Nucleus(
        torch.cat([part.cutoff_C for part in parts]), torch.cat([part.log_sum_C for part in parts])
    )
