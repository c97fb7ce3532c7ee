"""A draft's own output layer stays its own.

vLLM lets a draft whose output layer equals the policy's share the policy's module. A draft that is
trained starts out that way, and publishing it would then overwrite the policy's output layer.
"""

from typing import Any


def install() -> None:
    """Keeps the output layer of a draft whose checkpoint has one."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    original = SpecDecodeBaseProposer._maybe_share_lm_head
    if getattr(original, "keeps_own_head", False):
        return

    def share(self: Any, target_language_model: Any) -> None:
        own = self.model.lm_head if getattr(self.model, "has_own_lm_head", False) else None
        original(self, target_language_model)
        if own is not None:
            self.model.lm_head = own

    share.keeps_own_head = True  # type: ignore[attr-defined]  # our mark
    SpecDecodeBaseProposer._maybe_share_lm_head = share
