"""Taps the policy's own forward pass for what a learned draft trains on.

Legend: T packed tokens, A auxiliary layers, H hidden, R response tokens, D draft vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from specrl.algo.nucleus import Nucleus
from specrl.hidden_states import HiddenStates
from specrl.learner.head import HeadSettings
from specrl.learner.packing import Int, PackedBatch, sample_rows
from specrl.learner.policy import Policy

EMBEDDINGS = 0  # Hugging Face's index of the residual stream before the first layer


class HiddenStateTap:
    """Collects `HiddenStates` of microbatches; hooks are on the policy only in `forward`.

    `aux_layers` and `target_ids_D` are those of `hidden_states.DraftTrainer`. Nothing it does
    reaches the policy's graph, gradients or random numbers.
    """

    def __init__(
        self, policy: Policy, head: HeadSettings, aux_layers: Sequence[int], target_ids_D: Tensor
    ) -> None:
        self.batches: list[HiddenStates] = []
        self._policy = policy
        self._head = head
        self._aux_layers = tuple(aux_layers)
        self._target_ids_D = target_ids_D.to(policy.head_weight.device)
        self._quota: Sequence[int] = ()
        self._head_DH: Tensor | None = None
        self._streams: dict[int, Tensor] = {}

    @property
    def num_tokens(self) -> int:
        """Response tokens collected."""
        return sum(batch.num_tokens for batch in self.batches)

    def clear(self) -> None:
        """Forgets what was collected."""
        self.batches = []
        self._head_DH = None

    def start(self, quota: Sequence[int]) -> None:
        """Before microbatches that one set of weights sees; on all tensor-parallel ranks at once.

        Of sample i the first `quota[i]` response tokens will be kept.
        """
        self._quota = quota
        if not any(quota):
            return
        head_DH = self._draft_head()
        if self._head_DH is None or not torch.equal(self._head_DH, head_DH):
            self._head_DH = head_DH

    def forward(self, batch: PackedBatch) -> Tensor:
        """What the policy gives for the batch, recorded where its samples have a quota."""
        self._streams = {}
        if not any(self._quota[index] for index in batch.samples):
            return self._policy(batch)  # type: ignore[no-any-return]  # untyped module
        with self._hooks():
            return self._policy(batch)  # type: ignore[no-any-return]  # untyped module

    @property
    def keeping(self) -> bool:
        """Whether `keep` will add the batch that `forward` has just seen, and needs its nucleus."""
        return bool(self._streams)

    def keep(self, batch: PackedBatch, final_RH: Tensor, nucleus: Nucleus) -> None:
        """Adds the batch that `forward` has just seen, with what its head gave."""
        if not self._streams:
            return
        rows, slices, prompt_lengths, kept_R = self._kept(batch)
        used_T = np.unique(np.concatenate(rows))
        chosen_T, chosen_R = (self._on_device(x) for x in (used_T, np.concatenate(kept_R)))
        streams = {
            layer: stream_T1H.squeeze(1).index_select(0, chosen_T)
            for layer, stream_T1H in self._streams.items()
        }
        self._streams = {}
        assert self._head_DH is not None
        self.batches.append(
            HiddenStates(
                token_ids_T=self._on_device(batch.token_ids_T[used_T]),
                embeds_TH=streams[EMBEDDINGS],
                aux_TAH=torch.stack([streams[layer] for layer in self._aux_layers], dim=1),
                rows=tuple(self._on_device(np.searchsorted(used_T, own)) for own in rows),
                prompt_lengths=tuple(prompt_lengths),
                final_RH=final_RH.detach().index_select(0, chosen_R),
                nucleus=nucleus.of(chosen_R),
                slices=tuple(slices),
                head_DH=self._head_DH,
                temperature=self._head.temperature,
            )
        )

    def _kept(self, batch: PackedBatch) -> tuple[list[Int], list[slice], list[int], list[Int]]:
        """Per sample with a quota: packed rows, new slice, prompt length, old response numbers."""
        rows, slices, prompt_lengths, kept = [], [], [], []
        total = 0
        for number, index in enumerate(batch.samples):
            prompt, response = sample_rows(batch, number)
            count = min(self._quota[index], len(response))
            if count == 0:
                continue
            first = batch.slices[number].start
            rows.append(np.concatenate([prompt, response[:count]]))
            slices.append(slice(total, total + count))
            prompt_lengths.append(len(prompt))
            kept.append(np.arange(first, first + count))
            total += count
        return rows, slices, prompt_lengths, kept

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        """Only round a forward pass: recomputed layers would fire them again in the backward."""
        modules = {EMBEDDINGS: self._policy.embedding}
        modules |= {i: self._policy.decoder.layers[i - 1] for i in self._aux_layers if i > 0}
        handles = [
            module.register_forward_hook(self._recorder(layer)) for layer, module in modules.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _recorder(self, layer: int) -> Callable[[Any, Any, Any], None]:
        def record(_module: Any, _inputs: Any, output: Any) -> None:
            hidden_T1H: Tensor = output[0] if isinstance(output, tuple) else output
            self._streams[layer] = hidden_T1H.detach()

        return record

    @torch.no_grad()
    def _draft_head(self) -> Tensor:
        """A copy of the output layer's rows of the draft vocabulary, from all ranks' shards."""
        weight_VH = self._policy.head_weight
        local_D = self._target_ids_D - self._head.vocab_start
        mine_D = (local_D >= 0) & (local_D < len(weight_VH))
        head_DH = weight_VH.index_select(0, local_D.clamp(0, len(weight_VH) - 1))
        if self._head.group is not None:
            head_DH[~mine_D] = 0.0
            dist.all_reduce(head_DH, group=self._head.group)
        return head_DH

    def _on_device(self, array: Int) -> Tensor:
        return torch.from_numpy(array).to(self._target_ids_D.device)


def token_quota(lengths: Sequence[int], budget: int | None, seed: int) -> list[int]:
    """Response tokens to keep of samples with `lengths`: whole samples drawn at random.

    At most `budget` in all, the last one cut to fit; None keeps everything.
    """
    if budget is None:
        return list(lengths)
    quota = [0] * len(lengths)
    for index in np.random.default_rng(seed).permutation(len(lengths)):
        quota[index] = min(lengths[index], budget)
        budget -= quota[index]
    return quota
