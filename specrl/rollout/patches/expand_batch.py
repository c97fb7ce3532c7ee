"""Temperature, top_p and top_k of speculative rows (vllm#55005).

The CPU build's expand kernel writes into an int64 copy of its output, so the rows that verify draft
tokens are sampled with uninitialised values.
"""

from types import SimpleNamespace

import torch

# B requests, T draft tokens of all requests, V vocabulary


def install() -> None:
    """Replaces vLLM's expansion of per-request values to draft rows."""
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens


def expand_batch_to_tokens(
    x: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    num_tokens: int,
    replace_from: int = 0,
    replace_to: int = 0,
) -> torch.Tensor:
    """[B] to [T]: request b's value for each of its draft tokens.

    `cu_num_tokens` [B] are cumulative counts; `replace_from` becomes `replace_to`.
    """
    counts_B = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values_B = x if replace_from == replace_to else x.masked_fill(x == replace_from, replace_to)
    return torch.repeat_interleave(values_B, counts_B, output_size=num_tokens)


def problem() -> str | None:
    """Runs vLLM's own constraint step on known rows; None when their temperatures are right."""
    from vllm.v1.sample import rejection_sampler

    apply = getattr(rejection_sampler, "apply_sampling_constraints", None)
    if apply is None:
        return "vLLM's rejection_sampler.apply_sampling_constraints is gone"
    temperature_B = torch.tensor([0.5, 0.0, 4.0])
    row_temperature_T = torch.tensor([0.5, 0.5, 1.0, 4.0, 4.0, 4.0])
    logits_TV = torch.arange(24, dtype=torch.float32).reshape(6, 4) - 11.0
    metadata = SimpleNamespace(all_greedy=False, temperature=temperature_B, top_k=None, top_p=None)
    counts_B = torch.tensor([2, 3, 6], dtype=torch.int32)
    scaled_TV = apply(logits_TV.clone(), counts_B, metadata)
    if not torch.allclose(scaled_TV, logits_TV / row_temperature_T[:, None]):
        return "vLLM samples draft rows at a wrong temperature (vllm#55005)"
    return None
