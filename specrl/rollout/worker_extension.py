"""Imported by vLLM in every worker process (`worker_extension_cls`): patches and weight reloads.

The methods answer with the problem as text instead of raising: a worker may be in a process whose
exceptions vLLM does not carry over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from specrl.errors import PublishError
from specrl.rollout import patches
from specrl.rollout.live_draft import fingerprint, live_problem
from specrl.rollout.patches import cpu_sampler
from specrl.rollout.reload import reload_draft, reload_model
from specrl.rollout.snapshot_file import read_draft, read_verified
from specrl.rollout.staged_file import StagedFile

patches.install()

Tensors = Mapping[str, torch.Tensor]


class WorkerExtension:
    """Methods added to vLLM's worker class; called through `collective_rpc`."""

    model_runner: Any
    vllm_config: Any
    _specrl_staged: tuple[Tensors, Tensors | None]
    _specrl_draft: Mapping[str, str] | None = None
    _specrl_names: tuple[str, ...] = ()

    def specrl_sampling_problem(self) -> str | None:
        """What speculation would get wrong in this process."""
        return patches.sampling_problem()

    def specrl_verify_by_block(self) -> str | None:
        """Verifies drafts jointly (arXiv:2403.10444)."""
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            cpu_sampler.verify_by_block(True)
        elif not self.vllm_config.use_v2_model_runner:
            return "vLLM's first model runner has no block verification"
        return None

    def specrl_aux_layers(self) -> tuple[int, ...]:
        """The layers whose output the draft is given, as vLLM counts them."""
        model = self.model_runner.get_model()
        return tuple(getattr(model.model, "aux_hidden_state_layers", ()))

    def specrl_stage(self, policy: StagedFile, draft: StagedFile | None) -> str | None:
        """Verifies a snapshot's files and keeps them mapped; nothing live is touched."""
        try:
            tensors = read_verified(Path(policy.path), policy.checksums, policy.expected)
            drafting = None if draft is None else self._specrl_read_draft(draft)
        except PublishError as error:
            return str(error)
        self._specrl_staged = (tensors, drafting)
        return None

    def specrl_load_staged(self) -> str | None:
        """Makes the staged tensors live; after a problem neither model is usable."""
        (tensors, drafting), self._specrl_staged = self._specrl_staged, ({}, None)
        try:
            uncovered = reload_model(self.model_runner.get_model(), self.vllm_config, tensors)
            if uncovered:
                return f"{len(uncovered)} parameters were not loaded, among them {uncovered[0]}"
            return None if drafting is None else self._specrl_load_draft(drafting)
        except Exception as error:  # whatever broke it off, the model is half new
            return f"loading failed: {type(error).__name__}: {error}"

    def specrl_draft_intact(self) -> str | None:
        """The first part of the live draft that changed since it was loaded; None: none did."""
        if self._specrl_draft is None:
            return None
        now = fingerprint(self.model_runner.get_draft_model(), self._specrl_names)
        changed = [name for name, digest in now.items() if digest != self._specrl_draft[name]]
        return changed[0] if changed else None

    def specrl_rest_draft(self, resting: bool) -> None:
        """A resting drafter runs no forward pass; its KV cache has gaps when it wakes."""
        drafter = getattr(self.model_runner, "drafter", None)
        if drafter is None or not hasattr(drafter, "model"):
            return
        if resting:
            drafter.propose = _propose_nothing
        else:
            vars(drafter).pop("propose", None)

    def _specrl_read_draft(self, draft: StagedFile) -> Tensors:
        vocab_size = self.vllm_config.model_config.get_vocab_size()
        return read_draft(Path(draft.path), draft.checksums, draft.expected, vocab_size)

    def _specrl_load_draft(self, tensors: Tensors) -> str | None:
        model = self.model_runner.get_draft_model()
        self._specrl_draft = None
        reload_draft(model, self.vllm_config, tensors)
        tensor_parallel = self.vllm_config.parallel_config.tensor_parallel_size
        # A shard of a matrix has no published tensor of its own to be compared with.
        problem = live_problem(model, tensors) if tensor_parallel == 1 else None
        if problem is not None:
            return problem
        self._specrl_names = tuple(tensors)
        self._specrl_draft = fingerprint(model, self._specrl_names)
        return None


def _propose_nothing(*_: Any, common_attn_metadata: Any, **__: Any) -> torch.Tensor:
    like = common_attn_metadata.seq_lens
    return torch.empty(len(like), 0, dtype=torch.int64, device=like.device)
