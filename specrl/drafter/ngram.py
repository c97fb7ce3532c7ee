"""Prompt lookup: drafts what followed the last n tokens earlier in the same sequence."""

from typing import Any

from specrl.config.drafter import NgramConfig


class NgramDrafter:
    """vLLM's n-gram proposer; it has no weights and costs no forward pass."""

    def __init__(self, config: NgramConfig) -> None:
        self.name = config.name
        self.k = config.longest_k
        self._lookup_min = config.lookup_min
        self._lookup_max = config.lookup_max

    def speculative_config(self) -> dict[str, Any]:
        """vLLM's `speculative_config`."""
        return {
            "method": "ngram",
            "num_speculative_tokens": self.k,
            "prompt_lookup_min": self._lookup_min,
            "prompt_lookup_max": self._lookup_max,
        }

    def draft_setup(self) -> None:
        """None: nothing learns."""
        return
