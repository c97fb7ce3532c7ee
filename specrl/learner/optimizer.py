"""Gradients and AdamW of the policy, through Megatron's data-parallel wrapper and optimizer."""

import math
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from torch import Tensor

from specrl.config.learner import LearnerConfig
from specrl.errors import NonFiniteError
from specrl.learner.policy import Policy

LOWEST_RATE = 0.1  # of the peak, at the end of the decay


class PolicyOptimizer:
    """Owns gradients, fp32 master weights, Adam moments and the learning-rate schedule."""

    def __init__(self, policy: Policy, config: LearnerConfig) -> None:
        """Master weights start as the policy's present weights."""
        self.updates = 0
        self._config = config
        self._policy = policy
        # Gradients are summed in fp32 over microbatches and over data-parallel ranks.
        buffers = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
        self._model = DistributedDataParallel(policy.config, buffers, policy)
        chained = get_megatron_optimizer(_optimizer_config(config), [self._model])
        (self._optimizer,) = chained.chained_optimizers
        self._adam: torch.optim.Optimizer = self._optimizer.optimizer
        for group in self._adam.param_groups:
            group["weight_decay"] = config.weight_decay * group["wd_mult"]
            if isinstance(self._adam, torch.optim.AdamW):
                group["fused"] = True

    def zero_grad(self) -> None:
        """Before the first microbatch of an update."""
        self._model.zero_grad_buffer()
        self._optimizer.zero_grad()

    def reduce_gradients(self) -> None:
        """After the last microbatch: sums over data-parallel ranks, query/key norms over heads."""
        self._model.finish_grad_sync()
        if parallel_state.get_tensor_model_parallel_world_size() == 1:
            return
        for name, parameter in self._policy.named_parameters():
            if "q_layernorm" in name or "k_layernorm" in name:
                group = parallel_state.get_tensor_model_parallel_group()
                dist.all_reduce(parameter.main_grad, group=group)

    def update(self) -> tuple[float, float]:
        """One AdamW update; returns (gradient norm before clipping, learning rate).

        Raises `NonFiniteError` on every rank, with weights and moments untouched.
        """
        self._optimizer.prepare_grads()
        norm = float(self._optimizer.get_grad_norm())
        if not math.isfinite(norm):
            raise NonFiniteError(
                f"the gradient norm is {norm} at optimizer step {self.updates}; weights are "
                "those before it; lower learner.learning_rate or go on from an earlier checkpoint"
            )
        if self._config.clip_grad > 0:
            self._clip(norm)
        rate = self.learning_rate()
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._optimizer.step_with_ready_grads()
        self.updates += 1
        return norm, rate

    def learning_rate(self) -> float:
        """Of the next update: linear from learning_rate / warmup_steps, then constant or less."""
        warmup, decay = self._config.warmup_steps, self._config.decay_steps
        share = min(1.0, (self.updates + 1) / warmup) if warmup else 1.0
        if decay and self.updates >= warmup:
            share = 1.0 - (1.0 - LOWEST_RATE) * min(1.0, (self.updates - warmup) / decay)
        return self._config.learning_rate * share

    def _clip(self, norm: float) -> None:
        factor = self._config.clip_grad / (norm + 1e-6)
        if factor < 1.0:
            gradients = [p.grad for g in self._adam.param_groups for p in g["params"]]
            torch._foreach_mul_([g for g in gradients if g is not None], factor)

    def state(self) -> dict[str, Tensor]:
        """Master weights and moments of this rank by parameter name, not copied."""
        tensors = {}
        for name, parameter in self._policy.named_parameters():
            master = _master(parameter)
            tensors[f"master.{name}"] = master.detach()
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment in self._adam.state[master]:
                    tensors[f"{moment}.{name}"] = self._adam.state[master][moment]
        return tensors

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor], updates: int) -> None:
        """Takes over what `state` gave after `updates` updates, weights of the policy included."""
        self.updates = updates
        for name, parameter in self._policy.named_parameters():
            master = _master(parameter)
            master.copy_(tensors[f"master.{name}"])
            parameter.copy_(master)
            self._adam.state[master] = self._moments(name, master, tensors)
        if not isinstance(self._adam, torch.optim.AdamW):
            for group in self._adam.param_groups:
                group["step"] = updates

    def _moments(self, name: str, master: Tensor, tensors: dict[str, Tensor]) -> dict[str, Any]:
        if f"exp_avg.{name}" not in tensors:
            return {}
        moments: dict[str, Any] = {
            moment: tensors[f"{moment}.{name}"].to(master.device, copy=True)
            for moment in ("exp_avg", "exp_avg_sq")
        }
        if isinstance(self._adam, torch.optim.AdamW):
            # A tensor of its own for each parameter: AdamW increments it once per parameter.
            moments["step"] = torch.tensor(float(self.updates), device=master.device)
        return moments


def _master(parameter: Any) -> Tensor:
    """The fp32 copy the optimizer updates; the parameter itself in fp32."""
    master: Tensor = getattr(parameter, "main_param", parameter)
    return master


def _optimizer_config(config: LearnerConfig) -> OptimizerConfig:
    return OptimizerConfig(
        optimizer="adam",
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta1=config.beta1,
        adam_beta2=config.beta2,
        adam_eps=config.eps,
        bf16=config.precision == "bf16",
        params_dtype=torch.bfloat16 if config.precision == "bf16" else torch.float32,
        clip_grad=config.clip_grad,
        use_distributed_optimizer=False,
    )
