"""New weights into a live vLLM model, in place."""

from collections.abc import Mapping
from typing import Any

import torch

from specrl.rollout.patches import packed_gemm


def reload_model(
    model: torch.nn.Module, vllm_config: Any, tensors: Mapping[str, torch.Tensor]
) -> list[str]:
    """Loads `tensors` (Hugging Face names) and returns the parameters they did not cover.

    After an exception the model holds old and new weights mixed: load a complete set again.
    """
    parameters = {name for name, _ in model.named_parameters()}
    covered = _reload(model, vllm_config, vllm_config.model_config, tensors)
    return sorted(parameters - set(covered))


def reload_draft(
    model: torch.nn.Module, vllm_config: Any, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Loads `tensors` into a live draft; what it shares with the policy stays the policy's."""
    _reload(model, vllm_config, vllm_config.speculative_config.draft_model_config, tensors)


def _reload(
    model: torch.nn.Module,
    vllm_config: Any,
    model_config: Any,
    tensors: Mapping[str, torch.Tensor],
) -> Any:
    """What the model's `load_weights` answers."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )
    from vllm.platforms import current_platform

    with torch.no_grad(), set_current_vllm_config(vllm_config):
        initialize_layerwise_reload(model)
        try:
            with disable_mtp_completeness_check():
                covered = model.load_weights(iter(tensors.items()))  # type: ignore[operator]  # typed as Tensor
        finally:
            finalize_layerwise_reload(model, model_config)
        if current_platform.is_cpu():
            packed_gemm.repack(model)
    return covered
