"""A learned draft in a learner process: what it trains on, when, and its state on disk.

Legend: T packed tokens, R response tokens, H hidden.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from specrl.errors import UserError
from specrl.hidden_states import DraftTrainer, HiddenStates
from specrl.learner.head import HeadSettings, token_logprobs
from specrl.learner.packing import PackedBatch, TokenSample, microbatches
from specrl.learner.policy import Policy
from specrl.learner.tap import HiddenStateTap, token_quota
from specrl.types import DraftSetup, Float32

STATE_FOLDER = "draft-state"
EXPORT_FOLDER = "draft"
STEPS_FILE = "steps.json"
SAME_ON_EVERY_RANK = ("updates", "grad_norm")


class LearnedDraft:
    """Holds the trainer of `setup` beside `policy`, and the cache that feeds it.

    Every rank makes the same calls; tensor-parallel ranks hold copies of one draft.
    """

    def __init__(
        self, setup: DraftSetup, policy: Policy, head: HeadSettings, tokens_per_microbatch: int
    ) -> None:
        """Raises `UserError` when the draft was made for another policy."""
        self._setup = setup
        self._policy = policy
        self._head = head
        self._tokens_per_microbatch = tokens_per_microbatch
        self._trainer = _build_trainer(setup, policy)
        self._tap = self._new_tap()
        self._due = False
        self._steps = 0
        self._changed_at = 0

    def before_update(
        self, lengths: Sequence[Sequence[int]]
    ) -> tuple[HiddenStateTap | None, list[list[int]]]:
        """The tap of an RL step and its quotas, for response lengths by minibatch.

        No tap where no training of the draft is due.
        """
        self._tap.clear()
        every = self._setup.every
        self._due = every > 0 and (self._steps + 1) % every == 0
        if not self._due:
            return None, []
        flat = [length for minibatch in lengths for length in minibatch]
        quota = iter(token_quota(flat, self._setup.tokens, seed=self._steps))
        return self._tap, [[next(quota) for _ in minibatch] for minibatch in lengths]

    def after_update(self) -> None:
        """Counts the RL step."""
        self._steps += 1

    def step(self) -> dict[str, float]:
        """Trains on what the last update's forward passes left, and forgets it.

        Always has `staleness_steps`, RL steps since the draft last changed.
        """
        metrics: dict[str, float] = {}
        if self._due:
            passes = [self._tap.batches] * self._setup.passes
            metrics = self._fit(passes, self._setup.learning_rate, self._setup.loss)
            self._due = False
        self._tap.clear()
        return {**metrics, "staleness_steps": float(self._steps - self._changed_at)}

    def fit(
        self, learning_rate: float, part: int, parts: int, loss: str | None
    ) -> dict[str, float]:
        """One pass over every `parts`-th cached microbatch from number `part` on."""
        return self._fit([self._tap.batches[part::parts]], learning_rate, loss)

    def capture(self, samples: Sequence[TokenSample]) -> int:
        """Adds a forward pass over the samples to the cache; response tokens now in it."""
        self._tap.start([len(sample.response_ids) for sample in samples])
        for batch in microbatches(samples, self._tokens_per_microbatch):
            self._record(batch, self._tap)
        return self._tap.num_tokens

    def forget(self) -> None:
        """Empties the cache."""
        self._tap.clear()

    def replay(self, samples: Sequence[TokenSample], k: int) -> list[Float32]:
        """Per sample [R, k]; see `hidden_states.DraftTrainer.replay`. The cache stays."""
        results = [np.zeros((0, k), np.float32)] * len(samples)
        tap = self._new_tap()
        for batch in microbatches(samples, self._tokens_per_microbatch):
            tap.start([len(sample.response_ids) for sample in samples])
            self._record(batch, tap)
            replayed = self._trainer.replay(tap.batches, k)
            for index, kept in zip(batch.samples, replayed, strict=True):
                results[index] = np.asarray(kept, np.float32)
            tap.clear()
        return results

    def tensors(self) -> Mapping[str, Tensor]:
        """What the engine loads."""
        return self._trainer.tensors()

    def save(self, folder: Path) -> None:
        """Draft, optimizer and counters into the existing `folder`."""
        self._trainer.save(folder)
        steps = {"steps": self._steps, "changed_at": self._changed_at}
        (folder / STEPS_FILE).write_text(json.dumps(steps))

    def load(self, folder: Path) -> None:
        """Raises `UserError` when `folder` holds no state of a draft."""
        path = folder / STEPS_FILE
        if not path.is_file():
            raise UserError(
                f"{folder} holds no trained draft, and this run trains one; go on from a "
                "checkpoint of a run with this drafter, or use rerun=true"
            )
        steps = json.loads(path.read_text())
        self._trainer.load(folder)
        self._steps, self._changed_at = int(steps["steps"]), int(steps["changed_at"])
        self._due = False
        self._tap.clear()

    def export(self, folder: Path) -> None:
        """A Hugging Face folder."""
        self._trainer.export(folder)

    def save_checkpoint(self, folder: Path) -> None:
        """State and exported draft into the checkpoint `folder`."""
        for name, write in ((STATE_FOLDER, self.save), (EXPORT_FOLDER, self.export)):
            (folder / name).mkdir()
            write(folder / name)

    def load_checkpoint(self, folder: Path) -> None:
        """See `load`."""
        self.load(folder / STATE_FOLDER)

    def _new_tap(self) -> HiddenStateTap:
        trainer = self._trainer
        return HiddenStateTap(self._policy, self._head, trainer.aux_layers, trainer.target_ids_D)

    @torch.no_grad()
    def _record(self, batch: PackedBatch, tap: HiddenStateTap) -> None:
        self._policy.eval()
        hidden_TH = tap.forward(batch)
        device = hidden_TH.device
        final_RH = hidden_TH.index_select(0, torch.from_numpy(batch.head_rows_R).to(device))
        targets_R = torch.from_numpy(batch.targets_R).to(device)
        weight_VH = self._policy.vocabulary_weight
        statistics = token_logprobs(final_RH, weight_VH, targets_R, self._head, tap.keeping)
        tap.keep(batch, final_RH, statistics.nucleus)

    def _fit(
        self,
        passes: Sequence[Sequence[HiddenStates]],
        learning_rate: float,
        loss: str | None,
    ) -> dict[str, float]:
        """Metrics of all passes and data-parallel ranks."""
        group = parallel_state.get_data_parallel_group()
        sums = [self._trainer.fit(batches, learning_rate, group, loss) for batches in passes]
        self._changed_at = self._steps
        by_rank: list[Sequence[Mapping[str, float]]] = [[]] * dist.get_world_size(group)
        dist.all_gather_object(by_rank, sums, group=group)
        return {**draft_metrics(by_rank), "lr": learning_rate}


def draft_metrics(by_rank: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Of what `hidden_states.DraftTrainer.fit` gave in each pass on each rank."""
    own = by_rank[0]
    means = {name: 0.0 for name in own[-1] if name not in SAME_ON_EVERY_RANK}
    for sums in itertools.chain.from_iterable(by_rank):
        for name in means:
            means[name] += sums[name]
    slots = max(means.pop("slots"), 1.0)
    for name in means.keys() - {"tokens"}:
        means[name] /= slots
    updates = sum(sums["updates"] for sums in own)
    return {**means, "updates": updates, "grad_norm": own[-1]["grad_norm"]}


def _build_trainer(setup: DraftSetup, policy: Policy) -> DraftTrainer:
    module, _, attribute = setup.target.partition(":")
    build = getattr(import_module(module), attribute)
    # Building modules draws random numbers; the policy's own stream goes on as without a draft.
    with torch.random.fork_rng():
        trainer: DraftTrainer = build(folder=setup.folder, config=setup.config)
    layers, vocab = policy.shape.layers, policy.shape.vocab
    beyond = [layer for layer in trainer.aux_layers if not 0 <= layer < layers]
    if beyond:
        raise UserError(
            f"the draft in {setup.folder} sees layer {beyond[0]}, the policy has 0..{layers - 1}; "
            "use a draft that was made for this policy"
        )
    largest = int(trainer.target_ids_D.max())
    if largest >= vocab:
        raise UserError(
            f"the draft in {setup.folder} proposes token {largest}, the policy has {vocab} tokens; "
            "use a draft that was made for this policy"
        )
    return trainer
