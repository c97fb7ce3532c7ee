"""Trains an EAGLE-3 draft on the hidden states of the policy's own forward passes.

Legend: S draft steps, R response tokens, C tokens that are predicted, D draft vocabulary, V
vocabulary of the policy, H hidden.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from specrl.algo.draft_losses import DraftFit
from specrl.config.drafter import Eagle3Config
from specrl.drafter import draft_head
from specrl.drafter.draft_optimizer import DraftOptimizer
from specrl.drafter.eagle3_folder import load_draft, read_facts, write_folder
from specrl.drafter.eagle3_vocabulary import D2T, d2t_of, draft_ids_of
from specrl.drafter.ttt import Sample, Targets, lay_out, lay_out_targets, unroll
from specrl.errors import UserError
from specrl.hidden_states import HiddenStates
from specrl.types import Float32

STATE = "draft.safetensors"
REPLAY_ROWS = 2048  # response tokens replayed at once


class Eagle3Trainer:
    """`hidden_states.DraftTrainer` of the draft in `folder`, on the present device."""

    def __init__(self, folder: Path, config: Eagle3Config) -> None:
        self._training = config.training
        self._loss = draft_head.LossSettings(config.training.loss, config.sampling == "greedy")
        self._dtype = torch.bfloat16 if config.training.precision == "bf16" else torch.float32
        draft, target_ids_D = load_draft(folder)
        self._stored_dtype = draft.lm_head.weight.dtype
        self._facts = read_facts(folder)
        device = _device()
        self._draft = draft.to(device, torch.float32).requires_grad_()
        self.aux_layers = tuple(draft.shape.aux_layers)
        self.target_ids_D = target_ids_D.to(device)
        self._draft_ids_V = draft_ids_of(self.target_ids_D, draft.shape.vocab)
        self._optimizer = DraftOptimizer(self._draft, config.training)

    def fit(
        self,
        batches: Sequence[HiddenStates],
        learning_rate: float,
        group: dist.ProcessGroup | None = None,
        loss: str | None = None,
    ) -> dict[str, float]:
        """See `DraftTrainer`. Samples are shuffled anew in every pass, by the count of updates."""
        samples = [sample for sample in _samples(batches) if sample.num_targets]
        minibatches = self._minibatches(samples, group)
        totals = _summed([sum(s.num_targets for s in part) for part in minibatches], group)
        sums = _Sums(self._training.ttt_steps)
        objective = self._loss if loss is None else replace(self._loss, loss=loss)
        for part, total in zip(minibatches, totals, strict=True):
            if total:
                self._update(part, total, learning_rate, group, objective, sums)
        metrics = sums.metrics()
        metrics["tokens"] = float(sum(batch.num_tokens for batch in batches))
        return metrics

    @torch.no_grad()
    def replay(self, batches: Sequence[HiddenStates], k: int) -> list[Float32]:
        """See `DraftTrainer`."""
        results: list[Float32] = []
        for states in batches:
            for part in _pieces(list(_samples([states])), REPLAY_ROWS):
                results += self._replay(part, k)
        return results

    def tensors(self) -> Mapping[str, Tensor]:
        """See `DraftTrainer`."""
        tensors = {name: p.detach() for name, p in self._draft.named_parameters()}
        if self._draft.shape.draft_vocab < self._draft.shape.vocab:
            tensors[D2T] = d2t_of(self.target_ids_D.cpu())
        return tensors

    def save(self, folder: Path) -> None:
        """See `DraftTrainer`."""
        tensors = {name: tensor.cpu() for name, tensor in self._optimizer.state().items()}
        facts = json.dumps({"updates": self._optimizer.updates})
        save_file(tensors, folder / STATE, metadata={"facts": facts})
        with (folder / STATE).open("rb+") as file:
            os.fsync(file.fileno())

    def load(self, folder: Path) -> None:
        """See `DraftTrainer`. Raises `UserError` for the state of another draft."""
        with safe_open(folder / STATE, framework="pt") as file:
            updates = json.loads(file.metadata()["facts"])["updates"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        for name, parameter in self._draft.named_parameters():
            saved = tensors.get(f"master.{name}")
            if saved is None or saved.shape != parameter.shape:
                found = "missing" if saved is None else str(tuple(saved.shape))
                raise UserError(
                    f"the draft's state {folder / STATE} was written for another draft: {name} is "
                    f"{found}, not {tuple(parameter.shape)}; resume with the drafter it had"
                )
        self._optimizer.load_state(tensors, updates)

    def export(self, folder: Path) -> None:
        """See `DraftTrainer`; in the dtype of the folder that training began with."""
        tensors = {
            name: tensor.to(self._stored_dtype) if tensor.is_floating_point() else tensor
            for name, tensor in self.tensors().items()
        }
        write_folder(folder, self._draft.shape, tensors, self._facts)

    def _minibatches(
        self, samples: list[Sample], group: dist.ProcessGroup | None
    ) -> list[list[Sample]]:
        """Shuffled parts of nearly equal tokens, as many on every rank; parts may be empty."""
        tokens = sum(sample.num_targets for sample in samples)
        count = _largest(-(-tokens // self._training.tokens_per_update), group)
        parts: list[list[Sample]] = [[] for _ in range(count)]
        done = 0
        for index in np.random.default_rng(self._optimizer.updates).permutation(len(samples)):
            middle = done + samples[index].num_targets / 2
            parts[int(middle * count / tokens)].append(samples[index])
            done += samples[index].num_targets
        return parts

    def _update(
        self,
        samples: list[Sample],
        total: int,
        learning_rate: float,
        group: dist.ProcessGroup | None,
        objective: draft_head.LossSettings,
        sums: "_Sums",
    ) -> None:
        self._optimizer.zero_grad()
        if samples:
            targets, fit, step_weights_S = self._backward(samples, total, objective)
            sums.add(targets, fit, step_weights_S * total, sum(s.length for s in samples))
        sums.grad_norm = self._optimizer.update(learning_rate, group)
        sums.updates += 1

    def _backward(
        self, samples: list[Sample], total: int, objective: draft_head.LossSettings
    ) -> tuple[Targets, DraftFit, Tensor]:
        """Adds the gradient of the loss per token of `total`, a weighted mean over draft steps."""
        draft, steps = self._draft, self._training.ttt_steps
        batch = lay_out(samples, self._dtype)
        targets = lay_out_targets(samples, self._draft_ids_V)
        normed_SRH = draft.norm(torch.stack(list(unroll(draft, batch, steps))))
        decay_S = self._training.ttt_decay ** torch.arange(steps, device=normed_SRH.device)
        weights_S = decay_S / decay_S.sum() / total
        weight = draft.lm_head.weight
        assert weight.grad is not None
        fit, grad_SRH = draft_head.fit_backward(
            normed_SRH.detach(),
            weight.detach().to(self._dtype),
            weight.grad,
            targets,
            objective,
            weights_S,
        )
        torch.autograd.backward(normed_SRH, grad_SRH)
        return targets, fit, weights_S

    def _replay(self, samples: list[Sample], k: int) -> list[Float32]:
        sizes = [sample.length for sample in samples]
        if not any(sample.num_targets for sample in samples):
            return [np.zeros((size, k), np.float32) for size in sizes]
        targets = lay_out_targets(samples, self._draft_ids_V)
        outputs = list(unroll(self._draft, lay_out(samples, self._dtype), k))
        normed_SRH = self._draft.norm(torch.stack(outputs))
        weight_DH = self._draft.lm_head.weight.to(self._dtype)
        fit = draft_head.fit(normed_SRH, weight_DH, targets, self._loss)
        kept_SR = draft_head.by_row(fit.kept_SC, targets, sum(sizes))
        return [part.t().cpu().numpy() for part in torch.split(kept_SR, sizes, dim=1)]


class _Sums:
    """Sums over drafts of one `fit`, on the device until `metrics`."""

    def __init__(self, steps: int) -> None:
        self.updates = 0
        self.grad_norm = 0.0
        self._steps = steps
        self._slots = 0
        self._loss: list[Tensor] = []
        self._outside: list[Tensor] = []
        self._accepted_S: list[Tensor] = []

    def add(self, targets: Targets, fit: DraftFit, weights_S: Tensor, num_rows: int) -> None:
        """`weights_S` sum to 1."""
        self._slots += len(targets.rows_C)
        self._loss.append(weights_S @ fit.loss_SC.sum(1))
        self._outside.append((1.0 - fit.reachable_C).sum())
        kept_SR = draft_head.by_row(fit.kept_SC, targets, num_rows)
        accept_SR = draft_head.by_row(fit.accept_SC, targets, num_rows)
        # That all tokens before this one are kept is known from the tokens that came.
        before_SR = torch.cat([torch.ones_like(kept_SR[:1]), kept_SR[:-1]]).cumprod(0)
        self._accepted_S.append((before_SR * accept_SR).sum(1))

    def metrics(self) -> dict[str, float]:
        accepted = torch.stack(self._accepted_S).sum(0).tolist() if self._accepted_S else []
        accepted = accepted or [0.0] * self._steps
        return {
            "loss": float(sum(self._loss)),
            "out_of_vocabulary_mass": float(sum(self._outside)),
            **{f"expected_accepted_pos_{i}": value for i, value in enumerate(accepted)},
            "slots": float(self._slots),
            "updates": float(self.updates),
            "grad_norm": self.grad_norm,
        }


def _samples(batches: Sequence[HiddenStates]) -> Iterator[Sample]:
    return (Sample(states, i) for states in batches for i in range(len(states.slices)))


def _pieces(samples: list[Sample], rows: int) -> Iterator[list[Sample]]:
    """In order, each of at most `rows` response tokens or of one sample."""
    piece: list[Sample] = []
    used = 0
    for sample in samples:
        if piece and used + sample.length > rows:
            yield piece
            piece, used = [], 0
        piece.append(sample)
        used += sample.length
    if piece:
        yield piece


def _largest(count: int, group: dist.ProcessGroup | None) -> int:
    if group is None:
        return count
    counts = torch.tensor([count], device=_device())
    dist.all_reduce(counts, op=dist.ReduceOp.MAX, group=group)
    return int(counts)


def _summed(counts: list[int], group: dist.ProcessGroup | None) -> list[int]:
    if group is None or not counts:
        return counts
    sums = torch.tensor(counts, device=_device())
    dist.all_reduce(sums, group=group)
    return [int(value) for value in sums]


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
