"""A smaller model with the policy's vocabulary drafts; its weights stay as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrl.config.drafter import DraftModelConfig
from specrl.durable import read_json
from specrl.errors import UserError

COMPLETE = "give a Hugging Face model folder"


class DraftModelDrafter:
    """vLLM's draft_model method with a Hugging Face folder as the draft."""

    def __init__(self, config: DraftModelConfig, policy_folder: Path, draft_folder: Path) -> None:
        """`draft_folder` is `config.model` as a local folder.

        Raises `UserError` when a folder is no model or the vocabularies differ.
        """
        names = f"drafter.model={draft_folder}", f"model.path={policy_folder}"
        draft = read_json(draft_folder / "config.json", names[0], COMPLETE)
        policy = read_json(policy_folder / "config.json", names[1], COMPLETE)
        check_vocabulary(draft, policy, *names)
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


def check_vocabulary(
    draft: Mapping[str, Any], policy: Mapping[str, Any], draft_name: str, policy_name: str
) -> None:
    """Raises `UserError` unless two config.json have the same vocabulary size."""
    sizes = []
    for values, name in ((draft, draft_name), (policy, policy_name)):
        size = values.get("vocab_size")
        if not isinstance(size, int):
            raise UserError(
                f"{name}: its config.json has no integer vocab_size; give a causal language "
                "model's folder"
            )
        sizes.append(size)
    if sizes[0] != sizes[1]:
        raise UserError(
            f"{draft_name} has a vocabulary of {sizes[0]} tokens, the policy {policy_name} has "
            f"{sizes[1]}; use a draft with the policy's tokeniser"
        )
