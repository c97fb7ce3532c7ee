"""Draft positions that vLLM pads with -1.

A new request with one uncached prompt token is padded to the width of a verification step. The GPU
kernel rejects a draft id below 0; the CPU kernel uses it as an index, so it may "accept" the
padding and sample the response's first token from a later position's distribution.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

# B requests, T draft tokens of all requests, K draft positions, V vocabulary

NO_TOKEN = -1


def install() -> None:
    """Makes vLLM's rejection sampler end a response step at the first padded position."""
    from vllm.v1.sample import rejection_sampler

    original = getattr(rejection_sampler, "rejection_sample", None)
    if original is None or getattr(original, "rejects_padding", False):
        return

    def rejection_sample(
        draft_token_ids: torch.Tensor,
        num_draft_tokens: list[int],
        max_spec_len: int,
        cu_num_draft_tokens: torch.Tensor,
        draft_probs: torch.Tensor | None,
        *rest: Any,
        **options: Any,
    ) -> torch.Tensor:
        padded_T = draft_token_ids < 0
        if padded_T.any():
            draft_token_ids = draft_token_ids.clamp(min=0)
            draft_probs = _certain(draft_probs, padded_T)
        sampled_BK: torch.Tensor = original(
            draft_token_ids,
            num_draft_tokens,
            max_spec_len,
            cu_num_draft_tokens,
            draft_probs,
            *rest,
            **options,
        )
        return _cut(sampled_BK, padded_T, num_draft_tokens)

    rejection_sample.rejects_padding = True  # type: ignore[attr-defined]  # our mark
    rejection_sampler.rejection_sample = rejection_sample


def _certain(draft_probs_TV: torch.Tensor | None, padded_T: torch.Tensor) -> torch.Tensor | None:
    """Padding becomes a draft of token 0 with probability 1: what is then sampled is exact."""
    if draft_probs_TV is None:
        return None
    certain_TV = draft_probs_TV.clone()
    certain_TV[padded_T] = 0.0
    certain_TV[padded_T, 0] = 1.0
    return certain_TV


def _cut(
    sampled_BK: torch.Tensor, padded_T: torch.Tensor, num_draft_tokens: list[int]
) -> torch.Tensor:
    """Drops what follows the first padded position: those logits saw no real token before them."""
    if not padded_T.any():
        return sampled_BK
    counts_B = torch.tensor(num_draft_tokens)
    request_T = torch.repeat_interleave(torch.arange(len(counts_B)), counts_B)
    position_T = torch.arange(len(request_T)) - (counts_B.cumsum(0) - counts_B)[request_T]
    width = sampled_BK.shape[1]
    first_B = torch.full((len(counts_B),), width).scatter_reduce(
        0, request_T[padded_T], position_T[padded_T], "amin"
    )
    return sampled_BK.masked_fill(torch.arange(width)[None, :] > first_B[:, None], NO_TOKEN)


@dataclass
class _Metadata:
    all_greedy: bool = False
    all_random: bool = True
    temperature: torch.Tensor = field(default_factory=lambda: torch.ones(2))
    generators: dict[int, torch.Generator] = field(default_factory=dict)


def problem() -> str | None:
    """Verifies padding behind a row that ends in probability 1; None when it is rejected."""
    from vllm.v1.sample import rejection_sampler

    sample = getattr(rejection_sampler, "rejection_sample", None)
    if sample is None:
        return "vLLM's rejection_sampler.rejection_sample is gone"
    logits_TV = torch.full((2, 4), -100.0)
    logits_TV[0, 3] = logits_TV[1, 2] = 100.0
    drafts_T = torch.tensor([3, NO_TOKEN], dtype=torch.int32)
    counts_B = torch.tensor([1, 2], dtype=torch.int32)
    bonus_B1 = torch.tensor([[1], [1]], dtype=torch.int32)
    sampled_BK = sample(drafts_T, [1, 1], 1, counts_B, None, logits_TV, bonus_B1, _Metadata())
    if sampled_BK.tolist() != [[3, 1], [2, NO_TOKEN]]:
        return "vLLM accepts padded draft tokens"
    return None
