"""Norms and activations of vLLM's CPU build by its own fused kernels.

The build has them and calls them on GPUs only; its CPU path makes eight passes over a norm. They
scale before they round, as on a GPU.
"""

from typing import Any

import torch


def install() -> None:
    """Replaces the CPU paths of RMSNorm and SiluAndMul."""
    from vllm.model_executor.layers.activation import SiluAndMul
    from vllm.model_executor.layers.layernorm import RMSNorm

    RMSNorm.forward_cpu = _rms_norm
    SiluAndMul.forward_cpu = _silu_and_mul


def _rms_norm(
    self: Any, x: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Never in place: a draft's auxiliary layer 0 is the residual itself, and is read later."""
    if not self.has_weight or self.variance_size_override or self.weight.dtype != x.dtype:
        native: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = self.forward_native(x, residual)
        return native
    total = (x if residual is None else x + residual).contiguous()
    out = torch.empty_like(total)
    torch.ops._C.rms_norm(out, total, self.weight.data, self.variance_epsilon)
    return out if residual is None else (out, total)


def _silu_and_mul(_self: Any, x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    torch.ops._C.silu_and_mul(out, x.contiguous())
    return out
