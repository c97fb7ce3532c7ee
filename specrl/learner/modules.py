"""Layers of the learner that replace Megatron's unfused ones: less memory, same arithmetic as HF.

Legend: H features of the last dimension, F channels of the MLP.
"""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.transformer.mlp import MLP
from torch import Tensor


class RMSNorm(torch.nn.Module):
    """Normalises in fp32, rounds, then scales."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as x."""
        out: Tensor = _rms_norm(x, self.weight, self.eps)
        return out


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        x32 = x.float()
        scale = torch.linalg.vector_norm(x32, dim=-1, keepdim=True).square_()
        scale.div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight_H, scale)
        normed: Tensor = (x32 * scale).to(x.dtype)
        return weight_H * normed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight_H, scale = ctx.saved_tensors
        normed = x.float() * scale
        grad32 = grad.float()
        grad_weight = (grad32 * normed).flatten(0, -2).sum(0)
        grad_normed = grad32 * weight_H
        projection = (grad_normed * normed).mean(-1, keepdim=True)
        grad_x = grad_normed.sub_(normed.mul_(projection)).mul_(scale)
        return grad_x.to(x.dtype), grad_weight.to(weight_H.dtype), None


_rms_norm: Any = _RMSNorm.apply


class GatedMLP(MLP):  # type: ignore[misc]  # untyped base
    """SwiGLU that keeps only the input of the activation for the backward pass."""

    def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, Tensor | None]:
        """As Megatron's MLP: output and (absent) bias."""
        gate_up, _bias = self.linear_fc1(hidden_states)
        output, bias = self.linear_fc2(_swiglu(gate_up))
        return output, bias


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate_F, up_F = gate_up.chunk(2, dim=-1)
        return F.silu(gate_F).mul_(up_F)

    @staticmethod
    def backward(ctx: Any, grad_F: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        gate_F, up_F = gate_up.chunk(2, dim=-1)
        grad = torch.empty_like(gate_up)
        grad_gate, grad_up = grad.chunk(2, dim=-1)
        torch.mul(F.silu(gate_F), grad_F, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad_F * up_F, gate_F, grad_input=grad_gate)
        return grad


_swiglu: Any = _SwiGLU.apply
