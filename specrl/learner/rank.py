"""One learner process: a shard of the policy, its optimizer, and the calls the driver makes.

Legend: R response tokens of a microbatch, H hidden, T packed tokens, V vocabulary rows.
"""

import datetime
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from torch import Tensor

from specrl.algo.losses import Objective
from specrl.config.algorithm import AlgorithmConfig
from specrl.config.learner import LearnerConfig
from specrl.errors import UserError
from specrl.learner import cpu_shims, mapping, rendezvous
from specrl.learner.draft import LearnedDraft
from specrl.learner.head import HeadSettings, token_logprobs
from specrl.learner.layout import ModelShape, read_shape, world_size
from specrl.learner.optimizer import PolicyOptimizer
from specrl.learner.packing import PackedBatch, TokenSample, microbatches
from specrl.learner.policy import Policy, build_policy
from specrl.learner.snapshot import write_draft, write_snapshot
from specrl.learner.state import load_state, save_state
from specrl.learner.tap import HiddenStateTap
from specrl.learner.update import PolicyUpdate
from specrl.types import DraftSetup, Float32, TokenLogprobs, TrainSample, WeightSnapshot

COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=30)
NO_DRAFT = "this run has no learned draft; use a drafter that learns, e.g. drafter=eagle3"
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class LearnerRank:
    """Rank `rank` of `world`; ranks of one tensor-parallel group are neighbours.

    `serving_dtype` ("bfloat16" or "float32") is that of exported weights, `temperature` and `top_p`
    are those of the rollouts, `draft` is the learned draft that is trained beside the policy.
    Nothing is loaded before `connect`, which every rank must be in at once. Calls about a draft
    raise `UserError` where there is none.
    """

    def __init__(  # noqa: PLR0913 (what a process is started with is one flat list)
        self,
        model_folder: str,
        learner: LearnerConfig,
        algorithm: AlgorithmConfig,
        temperature: float,
        top_p: float,
        serving_dtype: str,
        seed: int,
        rank: int,
        world: int,
        draft: DraftSetup | None = None,
    ) -> None:
        assert world == world_size(learner), (world, learner)
        assert temperature > 0, temperature
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
        self._folder = Path(model_folder)
        self._learner = learner
        self._algorithm = algorithm
        self._temperature = temperature
        self._top_p = top_p
        self._serving_dtype: torch.dtype = getattr(torch, serving_dtype)
        self._seed = seed
        self._rank = rank
        self._world = world
        self._draft_setup = draft
        self._store: rendezvous.Store | None = None
        self._policy: Policy
        self._optimizer: PolicyOptimizer
        self._reference: Policy | None = None
        self._learned_draft: LearnedDraft | None = None

    def listen(self) -> tuple[str, int]:
        """On rank 0: opens the meeting point and returns its (host, port)."""
        self._store = rendezvous.open_store(self._world)
        return self._store.host, self._store.port

    def connect(self, host: str, port: int) -> None:
        """Joins the other ranks, then loads the weights."""
        store = self._store or rendezvous.join_store(host, port, self._world)
        cpu_shims.install()
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend,
            store=store,
            rank=self._rank,
            world_size=self._world,
            timeout=COLLECTIVE_TIMEOUT,
        )
        with cpu_shims.on_this_device():
            parallel_state.initialize_model_parallel(self._learner.tensor_parallel)
            tensor_parallel.model_parallel_cuda_manual_seed(self._seed)
            self._build()

    def logprobs(self, samples: Sequence[TokenSample]) -> list[TokenLogprobs]:
        """Log-probs of each response, in the order given, by the policy and by the reference."""
        batches = microbatches(samples, self._learner.tokens_per_microbatch)
        policy = self._policy if self._learner.recompute_logprobs else None
        own = self._logprobs(policy, batches, len(samples))
        others = self._logprobs(self._reference, batches, len(samples))
        return [
            TokenLogprobs(logprobs, reference, entropy)
            for (logprobs, entropy), (reference, _) in zip(own, others, strict=True)
        ]

    def step(self, minibatches: Sequence[Sequence[TrainSample]]) -> dict[str, float]:
        """One optimizer step per minibatch, each given as this copy's share; metrics of all ranks.

        Raises `NonFiniteError` before the weights of that minibatch change.
        """
        tap: HiddenStateTap | None = None
        quotas: list[list[int]] = []
        if self._learned_draft is not None:
            lengths = [[len(sample.response_ids) for sample in part] for part in minibatches]
            tap, quotas = self._learned_draft.before_update(lengths)
        with cpu_shims.on_this_device():
            metrics = self._update.run(minibatches, tap, quotas)
        if self._learned_draft is not None:
            self._learned_draft.after_update()
        return metrics

    def step_draft(self) -> dict[str, float]:
        """See `protocols.Learner`; metrics of all ranks."""
        return {} if self._learned_draft is None else self._learned_draft.step()

    def capture(self, samples: Sequence[TokenSample]) -> int:
        """See `protocols.DraftLearner`; of this copy's share."""
        return self._draft.capture(samples)

    def fit_draft(
        self, learning_rate: float, part: int, parts: int, loss: str | None
    ) -> dict[str, float]:
        """See `protocols.DraftLearner`; metrics of all ranks."""
        return self._draft.fit(learning_rate, part, parts, loss)

    def forget_captured(self) -> None:
        """See `protocols.DraftLearner`."""
        self._draft.forget()

    def replay_draft(self, samples: Sequence[TokenSample], k: int) -> list[Float32]:
        """See `protocols.DraftLearner`; of this copy's share."""
        return self._draft.replay(samples, k)

    def save_draft(self, folder: Path) -> None:
        """See `protocols.DraftLearner`; the first rank writes."""
        if self._rank == 0:
            self._draft.save(Path(folder))

    def load_draft(self, folder: Path) -> None:
        """See `protocols.DraftLearner`."""
        self._draft.load(Path(folder))

    def export_draft(self, folder: Path) -> None:
        """See `protocols.DraftLearner`; the first rank writes."""
        if self._rank == 0:
            self._draft.export(Path(folder))

    def export_weights(self, folder: Path, version: int) -> WeightSnapshot | None:
        """The snapshot on the rank that writes it, None on the others. Call on every rank."""
        if parallel_state.get_data_parallel_rank() != 0:
            return None
        tensors = mapping.export_weights(
            dict(self._policy.named_parameters()),
            self._shape,
            self._learner.tensor_parallel,
            _gather_shards,
        )
        if parallel_state.get_tensor_model_parallel_rank() == 0:
            count = 16 * (self._shape.layers + 1)
            policy = write_snapshot(Path(folder), version, self._serving_dtype, tensors, count)
            return self._with_draft(policy)
        for _ in tensors:
            pass
        return None

    def save(self, folder: Path) -> None:
        """This tensor-parallel rank's state, written once per copy of the weights."""
        if parallel_state.get_data_parallel_rank() == 0:
            save_state(self._state_file(folder), self._optimizer, self._layout())
        if self._learned_draft is not None and self._rank == 0:
            self._learned_draft.save_checkpoint(Path(folder))

    def load(self, folder: Path) -> None:
        """Raises `UserError` when the checkpoint has another tensor parallelism or precision.

        Or no draft, in a run that has one.
        """
        load_state(self._state_file(folder), self._optimizer, self._layout())
        if self._learned_draft is not None:
            self._learned_draft.load_checkpoint(Path(folder))

    def _build(self) -> None:
        self._shape: ModelShape = read_shape(self._folder)
        source = mapping.HuggingFaceFolder(self._folder)
        self._policy = self._load_policy(source, self._learner.recompute)
        if self._algorithm.kl_coef > 0:
            self._reference = self._load_policy(source, recompute=False).requires_grad_(False)
        self._optimizer = PolicyOptimizer(self._policy, self._learner)
        self._head = self._head_settings()
        self._update = PolicyUpdate(
            self._policy,
            self._optimizer,
            self._head,
            Objective(
                self._algorithm.clip_low,
                self._algorithm.clip_high,
                self._algorithm.kl_coef,
                self._algorithm.truncated_is,
            ),
            self._algorithm.aggregation,
            self._learner.tokens_per_microbatch,
        )
        if self._draft_setup is not None:
            self._learned_draft = LearnedDraft(
                self._draft_setup, self._policy, self._head, self._learner.tokens_per_microbatch
            )

    @property
    def _draft(self) -> LearnedDraft:
        if self._learned_draft is None:
            raise UserError(NO_DRAFT)
        return self._learned_draft

    def _with_draft(self, policy: WeightSnapshot) -> WeightSnapshot:
        if self._learned_draft is None:
            return policy
        folder, tensors = policy.path.parent, self._learned_draft.tensors()
        draft = write_draft(folder, policy.version, self._serving_dtype, tensors)
        return replace(policy, draft=draft)

    def _load_policy(self, source: mapping.HuggingFaceFolder, recompute: bool) -> Policy:
        policy = build_policy(self._shape, _DTYPES[self._learner.precision], recompute)
        shard = mapping.Shard(
            parallel_state.get_tensor_model_parallel_rank(), self._learner.tensor_parallel
        )
        mapping.load_weights(dict(policy.named_parameters()), source, self._shape, shard)
        return policy

    @torch.no_grad()
    def _logprobs(
        self, policy: Policy | None, batches: Sequence[PackedBatch], count: int
    ) -> list[tuple[Float32 | None, Float32 | None]]:
        """Log-probs and entropies of each sample; None without a policy."""
        if policy is None:
            return [(None, None)] * count
        policy.eval()
        nothing = np.empty(0, np.float32)
        results: list[tuple[Float32 | None, Float32 | None]] = [(nothing, nothing)] * count
        for batch in batches:
            hidden_TH = policy(batch)
            device = hidden_TH.device
            hidden_RH = hidden_TH.index_select(0, torch.from_numpy(batch.head_rows_R).to(device))
            targets_R = torch.from_numpy(batch.targets_R).to(device)
            statistics = token_logprobs(hidden_RH, policy.vocabulary_weight, targets_R, self._head)
            logprobs, entropies = (
                x.cpu().numpy() for x in (statistics.logprobs_R, statistics.entropy_R)
            )
            for index, rows in zip(batch.samples, batch.slices, strict=True):
                results[index] = logprobs[rows], entropies[rows]
        return results

    def _head_settings(self) -> HeadSettings:
        parallel = self._learner.tensor_parallel > 1
        rank = parallel_state.get_tensor_model_parallel_rank()
        return HeadSettings(
            temperature=self._temperature,
            top_p=self._top_p,
            chunk_tokens=self._learner.logits_chunk_tokens,
            vocab_start=rank * len(self._policy.head_weight),
            group=parallel_state.get_tensor_model_parallel_group() if parallel else None,
        )

    def _layout(self) -> dict[str, str]:
        return {
            "learner.tensor_parallel": str(self._learner.tensor_parallel),
            "learner.precision": self._learner.precision,
        }

    def _state_file(self, folder: Path) -> Path:
        rank = parallel_state.get_tensor_model_parallel_rank()
        return Path(folder) / f"learner-tp{rank}-of-{self._learner.tensor_parallel}.safetensors"


def _gather_shards(tensor: Tensor, dim: int) -> Tensor:
    ways = parallel_state.get_tensor_model_parallel_world_size()
    if ways == 1:
        return tensor
    shards = [torch.empty_like(tensor) for _ in range(ways)]
    dist.all_gather(
        shards, tensor.contiguous(), group=parallel_state.get_tensor_model_parallel_group()
    )
    return torch.cat(shards, dim)
