"""A smaller model with the policy's vocabulary drafts; its weights stay as they are."""

import json
from pathlib import Path
from typing import Any

from specrl.config.drafter import DraftModelConfig
from specrl.errors import UserError


class DraftModelDrafter:
    """vLLM's draft_model method with a Hugging Face folder as the draft."""

    def __init__(self, config: DraftModelConfig, policy_folder: Path, draft_folder: Path) -> None:
        """`draft_folder` is `config.model` as a local folder.

        Raises `UserError` when a folder is no model or the vocabularies differ.
        """
        check_vocabulary(draft_folder, policy_folder)
        self.name = config.name
        self.k = config.longest_k
        self._folder = draft_folder
        self._sampling = config.sampling
        self._verification = config.verification

    def speculative_config(self) -> dict[str, Any]:
        """vLLM's `speculative_config`."""
        return {
            "method": "draft_model",
            "model": str(self._folder),
            "num_speculative_tokens": self.k,
            "draft_sample_method": self._sampling,
            "rejection_sample_method": self._verification,
        }

    def draft_setup(self) -> None:
        """None: nothing learns."""
        return


def check_vocabulary(draft_folder: Path, policy_folder: Path) -> None:
    """Raises `UserError` unless both are model folders with the same vocabulary size."""
    draft = _vocab_size(draft_folder, "drafter.model")
    policy = _vocab_size(policy_folder, "model.path")
    if draft != policy:
        raise UserError(
            f"drafter.model={draft_folder} has a vocabulary of {draft} tokens, the policy "
            f"{policy_folder} has {policy}; use a draft with the policy's tokeniser"
        )


def _vocab_size(folder: Path, key: str) -> int:
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{key}={folder} has no config.json; give a Hugging Face model folder")
    try:
        config = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is no JSON ({error}); restore the model folder") from error
    size = config.get("vocab_size")
    if not isinstance(size, int):
        raise UserError(f"{path} has no integer vocab_size; give a causal language model's folder")
    return size
