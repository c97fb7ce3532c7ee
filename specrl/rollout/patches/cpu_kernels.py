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
    fits = self.has_weight and self.variance_size_override is None
    if not fits or self.weight.dtype != x.dtype or not _contiguous(residual):
        native: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = self.forward_native(x, residual)
        return native
    x = x.contiguous()
    weight, epsilon = self.weight.data, self.variance_epsilon
    if residual is None:
        out = torch.empty_like(x)
        torch.ops._C.rms_norm(out, x, weight, epsilon)
        return out
    torch.ops._C.fused_add_rms_norm(x, residual, weight, epsilon)
    return x, residual


def _contiguous(residual: torch.Tensor | None) -> bool:
    return residual is None or residual.is_contiguous()


def _silu_and_mul(_self: Any, x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    torch.ops._C.silu_and_mul(out, x.contiguous())
    return out
