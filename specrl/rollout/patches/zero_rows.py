"""top_k on a step without draft rows.

A prefill step reaches the rejection sampler with no draft row, and the CPU build's `k.max()` of an
empty tensor ends the engine.
"""

from types import ModuleType
from typing import Any

import torch


def install() -> None:
    """Guards `apply_top_k_top_p` wherever vLLM holds it by name."""
    from vllm.v1.sample.ops import topk_topp_sampler

    original = getattr(topk_topp_sampler, "apply_top_k_top_p", None)
    if original is None or getattr(original, "guards_zero_rows", False):
        return

    def apply_top_k_top_p(logits: torch.Tensor, k: Any, p: Any) -> torch.Tensor:
        if logits.shape[0] == 0:
            return logits
        masked: torch.Tensor = original(logits, k, p)
        return masked

    apply_top_k_top_p.guards_zero_rows = True  # type: ignore[attr-defined]  # our mark
    for module in _holders():
        if getattr(module, "apply_top_k_top_p", None) is original:
            setattr(module, "apply_top_k_top_p", apply_top_k_top_p)  # noqa: B010 (a module)


def problem() -> str | None:
    """Runs the rejection sampler's masking on no rows; None when it survives."""
    for module in _holders():
        apply = getattr(module, "apply_top_k_top_p", None)
        if apply is None:
            return f"vLLM's {module.__name__}.apply_top_k_top_p is gone"
        none_TV, none_T = torch.empty(0, 4), torch.empty(0)
        try:
            apply(none_TV, none_T.int(), None)
            apply(none_TV, none_T.int(), none_T)
            apply(none_TV, None, none_T)
        except RuntimeError as error:
            return f"vLLM fails on a step without draft rows: {error}"
    return None


def _holders() -> tuple[ModuleType, ModuleType]:
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.sample.ops import topk_topp_sampler

    return topk_topp_sampler, rejection_sampler
