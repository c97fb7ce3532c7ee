"""AdamW of a draft: fp32 weights and moments, its own clip, gradients over data-parallel ranks."""

import math
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from specrl.config.drafter import DraftTrainingConfig
from specrl.errors import NonFiniteError

MOMENTS = ("exp_avg", "exp_avg_sq")
EPSILON = 1e-6  # keeps the clip factor finite


class DraftOptimizer:
    """Owns the gradients and moments of `draft`, whose fp32 parameters are the master weights."""

    def __init__(self, draft: nn.Module, config: DraftTrainingConfig) -> None:
        self.updates = 0
        self._clip_grad = config.clip_grad
        self._names = [name for name, _ in draft.named_parameters()]
        self._parameters = list(draft.parameters())
        matrices = [p for p in self._parameters if p.ndim > 1]
        vectors = [p for p in self._parameters if p.ndim == 1]
        self._adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            betas=(config.beta1, config.beta2),
            fused=True,
        )

    def zero_grad(self) -> None:
        """Gradients are there, and zero, also of what the next backward pass does not reach."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad.zero_()

    def update(self, learning_rate: float, group: dist.ProcessGroup | None) -> float:
        """One AdamW update with gradients summed over `group`; the norm before clipping.

        Raises `NonFiniteError` on every rank, with weights and moments untouched.
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if group is not None and dist.get_world_size(group) > 1:
            _all_reduce(gradients, group)
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            raise NonFiniteError(
                f"the draft's gradient norm is {norm} at its optimizer step {self.updates}; its "
                "weights are those before it; lower the draft's learning_rate or use "
                "drafter.training.precision=fp32"
            )
        if 0.0 < self._clip_grad < norm:
            torch._foreach_mul_(gradients, self._clip_grad / (norm + EPSILON))
        for parameters in self._adam.param_groups:
            parameters["lr"] = learning_rate
        self._adam.step()
        self.updates += 1
        return norm

    def state(self) -> dict[str, Tensor]:
        """Master weights and moments by parameter name, not copied."""
        tensors = {}
        for name, parameter in zip(self._names, self._parameters, strict=True):
            tensors[f"master.{name}"] = parameter.detach()
            for moment in MOMENTS:
                if moment in self._adam.state[parameter]:
                    tensors[f"{moment}.{name}"] = self._adam.state[parameter][moment]
        return tensors

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Takes over what `state` gave after `updates` updates."""
        self.updates = updates
        for name, parameter in zip(self._names, self._parameters, strict=True):
            parameter.copy_(tensors[f"master.{name}"])
            self._adam.state[parameter] = {}
            if f"{MOMENTS[0]}.{name}" in tensors:
                known = {m: tensors[f"{m}.{name}"].to(parameter.device, copy=True) for m in MOMENTS}
                step = torch.tensor(float(updates), device=parameter.device)
                self._adam.state[parameter] = {"step": step, **known}


def _all_reduce(gradients: list[Tensor], group: dist.ProcessGroup) -> None:
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
