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
from specrl.rollout.reload import reload_model
from specrl.rollout.snapshot_file import Shapes, read_verified

patches.install()


class WorkerExtension:
    """Methods added to vLLM's worker class; called through `collective_rpc`."""

    model_runner: Any
    vllm_config: Any
    _specrl_staged: dict[str, torch.Tensor]

    def specrl_sampling_problem(self) -> str | None:
        """What speculation would get wrong in this process."""
        return patches.sampling_problem()

    def specrl_stage(
        self, path: str, checksums: Mapping[str, str], shapes: Shapes, dtype: str
    ) -> str | None:
        """Verifies a snapshot file and keeps it mapped; the live model is not touched."""
        try:
            self._specrl_staged = read_verified(Path(path), checksums, shapes, dtype)
        except PublishError as error:
            return str(error)
        return None

    def specrl_load_staged(self) -> str | None:
        """Makes the staged tensors live; after a problem the model is not usable."""
        tensors, self._specrl_staged = self._specrl_staged, {}
        try:
            uncovered = reload_model(self.model_runner.get_model(), self.vllm_config, tensors)
        except Exception as error:  # whatever broke it off, the model is half new
            return f"loading failed: {type(error).__name__}: {error}"
        if uncovered:
            return f"{len(uncovered)} parameters were not loaded, among them {uncovered[0]}"
        return None
