"""One policy update: GRPO over minibatches, microbatch by microbatch.

Legend: R response tokens of a microbatch, T packed tokens, H hidden.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from specrl.algo.losses import Objective, PolicyTokens, grpo_loss, token_weights
from specrl.errors import NonFiniteError
from specrl.learner.head import HeadSettings, backward_through_head
from specrl.learner.optimizer import PolicyOptimizer
from specrl.learner.packing import PackedBatch, TokenSample, microbatches
from specrl.learner.policy import Policy
from specrl.learner.tap import HiddenStateTap
from specrl.types import Float32, TrainSample

SUMS = ("tokens", "ratio", "clipped", "importance", "kl", "loss", "entropy", "difference")


@dataclass
class _Totals:
    """Sums over tokens; `largest` is the largest |rollout - policy log-prob| of one."""

    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMS, 0.0))
    largest: float = 0.0

    def add(self, sums: Mapping[str, Tensor]) -> None:
        for name in sums.keys() & self.sums.keys():
            self.sums[name] += float(sums[name])
        if "largest_difference" in sums:
            self.largest = max(self.largest, float(sums["largest_difference"]))

    def reduce(self, device: torch.device) -> None:
        """Over the data-parallel ranks."""
        group = parallel_state.get_data_parallel_group()
        sums = [self.sums[name] for name in SUMS]
        values = torch.tensor(sums, dtype=torch.float64, device=device)
        dist.all_reduce(values, group=group)
        self.sums = dict(zip(SUMS, values.tolist(), strict=True))
        largest = torch.tensor([self.largest], dtype=torch.float64, device=device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        self.largest = float(largest)


class PolicyUpdate:
    """Runs optimizer steps on this data-parallel rank's share of each minibatch."""

    def __init__(
        self,
        policy: Policy,
        optimizer: PolicyOptimizer,
        head: HeadSettings,
        objective: Objective,
        aggregation: str,
        tokens_per_microbatch: int,
    ) -> None:
        self._policy = policy
        self._optimizer = optimizer
        self._head = head
        self._objective = objective
        self._aggregation = aggregation
        self._tokens_per_microbatch = tokens_per_microbatch
        self._device = policy.head_weight.device

    def run(
        self,
        minibatches: Sequence[Sequence[TrainSample]],
        tap: HiddenStateTap | None = None,
        quotas: Sequence[Sequence[int]] = (),
    ) -> dict[str, float]:
        """Metrics over all ranks and minibatches, token-weighted; norms and losses averaged.

        `tap` records the forward passes, with a quota for each minibatch.
        """
        self._policy.train()
        results = []
        for number, samples in enumerate(minibatches):
            if tap is not None:
                tap.start(quotas[number])
            results.append(self._minibatch(samples, tap))
        total = _Totals()
        for totals, _norm, _rate in results:
            total.largest = max(total.largest, totals.largest)
            for name in SUMS:
                total.sums[name] += totals.sums[name]
        tokens = max(total.sums["tokens"], 1.0)
        metrics = {
            "loss": total.sums["loss"] / len(results),
            "grad_norm": sum(norm for _, norm, _ in results) / len(results),
            "lr": results[-1][2],
            "tokens": total.sums["tokens"],
            "clip_fraction": total.sums["clipped"] / tokens,
            "ratio_mean": total.sums["ratio"] / tokens,
            "importance_mean": total.sums["importance"] / tokens,
            "entropy": total.sums["entropy"] / tokens,
            "logprob_diff_mean": total.sums["difference"] / tokens,
            "logprob_diff_max": total.largest,
        }
        if self._objective.kl_coef > 0:
            metrics["kl"] = total.sums["kl"] / tokens
        return metrics

    def _minibatch(
        self, samples: Sequence[TrainSample], tap: HiddenStateTap | None
    ) -> tuple[_Totals, float, float]:
        self._optimizer.zero_grad()
        weights = self._weights(samples)
        sequences = [TokenSample(s.prompt_ids, s.response_ids) for s in samples]
        totals = _Totals()
        for batch in microbatches(sequences, self._tokens_per_microbatch):
            tokens = self._policy_tokens(batch, samples, weights)
            self._backward(batch, tokens, totals, tap)
        self._optimizer.reduce_gradients()
        totals.reduce(self._device)
        loss = totals.sums["loss"]
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"the loss is {loss} at optimizer step {self._optimizer.updates}; weights are "
                "those before it; look for NaN in log-probs, or lower learner.learning_rate"
            )
        norm, rate = self._optimizer.update()
        return totals, norm, rate

    def _backward(
        self,
        batch: PackedBatch,
        tokens: PolicyTokens,
        totals: _Totals,
        tap: HiddenStateTap | None,
    ) -> None:
        hidden_TH = self._policy(batch) if tap is None else tap.forward(batch)
        rows_R = torch.from_numpy(batch.head_rows_R).to(self._device)
        final_RH = hidden_TH.index_select(0, rows_R)

        def loss_of(logprobs_C: Tensor, rows: slice) -> Tensor:
            loss, sums = grpo_loss(logprobs_C, tokens.part(rows), self._objective)
            totals.add(sums)
            return loss

        loss, statistics = backward_through_head(
            final_RH,
            self._policy.vocabulary_weight,
            self._policy.vocabulary_grad,
            torch.from_numpy(batch.targets_R).to(self._device),
            self._head,
            loss_of,
            with_nucleus=tap is not None and tap.keeping,
        )
        totals.add({"loss": loss, "entropy": statistics.entropy_R.sum()})
        if tap is not None:
            tap.keep(batch, final_RH, statistics.nucleus)

    def _weights(self, samples: Sequence[TrainSample]) -> list[float]:
        """Per sample, with the denominators of the whole minibatch over all data-parallel ranks."""
        lengths = [len(sample.response_ids) for sample in samples]
        sizes = torch.tensor([sum(lengths), len(lengths)], device=self._device)
        dist.all_reduce(sizes, group=parallel_state.get_data_parallel_group())
        total_tokens, total_sequences = (int(size) for size in sizes)
        return token_weights(lengths, self._aggregation, total_tokens, total_sequences)

    def _policy_tokens(
        self, batch: PackedBatch, samples: Sequence[TrainSample], weights: Sequence[float]
    ) -> PolicyTokens:
        chosen = [samples[index] for index in batch.samples]
        return PolicyTokens(
            advantage_R=self._spread([s.advantage for s in chosen], chosen),
            weight_R=self._spread([weights[index] for index in batch.samples], chosen),
            behaviour_R=self._joined_or_none([s.policy_logprobs for s in chosen]),
            rollout_R=self._joined([s.rollout_logprobs for s in chosen]),
            reference_R=self._joined_or_none([s.reference_logprobs for s in chosen]),
        )

    def _joined_or_none(self, arrays: Sequence[Float32 | None]) -> Tensor | None:
        known = [array for array in arrays if array is not None]
        assert len(known) in (0, len(arrays)), "log-probs of some samples only"
        return self._joined(known) if known else None

    def _spread(self, values: Sequence[float], samples: Sequence[TrainSample]) -> Tensor:
        lengths = [len(sample.response_ids) for sample in samples]
        return self._joined([np.repeat(np.asarray(values, np.float32), lengths)])

    def _joined(self, arrays: Sequence[Float32]) -> Tensor:
        joined = np.concatenate([np.asarray(array, np.float32) for array in arrays])
        return torch.from_numpy(joined).to(self._device)
