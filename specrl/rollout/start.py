"""Starts vLLM in this process."""

import os
from collections.abc import Mapping
from typing import Any

from specrl.errors import EngineError
from specrl.rollout.engine_args import check_engine_args
from specrl.rollout.environment import REQUIRED, REQUIRED_ON_CPU
from specrl.rollout.settings import EngineSettings

EXTENSION = "specrl.rollout.worker_extension.WorkerExtension"
CPU_KV_CACHE_BYTES = 2 * 1024**3
CPU_BLOCK_TOKENS = 32  # the smallest of the CPU's attention: a group shares most of its prompt


def start_vllm(settings: EngineSettings) -> Any:
    """The `vllm.LLM`.

    Raises `UserError` for an argument vLLM does not know, `EngineError` when it does not start.
    """
    check_engine_args(settings.engine_args)
    os.environ.update(REQUIRED)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        os.environ.update(REQUIRED_ON_CPU)
    arguments = engine_arguments(settings, on_cpu=current_platform.is_cpu())
    if arguments.get("enforce_eager"):
        _keep_eager()
    from vllm import LLM

    try:
        return LLM(**arguments)
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        raise EngineError(f"vLLM does not start on {settings.model}: {error}") from error


def engine_arguments(settings: EngineSettings, on_cpu: bool) -> dict[str, Any]:
    """vLLM's arguments: our defaults, then the user's, then what the engine's contract needs.

    On a CPU compiling the model costs 50 to 100 s at the first start, so eager is the default
    there, and the KV cache is bounded (vLLM would take a share of all memory).
    """
    defaults: dict[str, Any] = {}
    if on_cpu:
        defaults = {
            "enforce_eager": True,
            "kv_cache_memory_bytes": CPU_KV_CACHE_BYTES,
            "block_size": CPU_BLOCK_TOKENS,
        }
    speculation = speculation_argument(settings.speculative_config, on_cpu)
    needed = {
        "model": settings.model,
        "dtype": settings.dtype,
        "seed": settings.seed,
        "max_model_len": settings.max_model_len,
        "speculative_config": speculation,
        # After temperature and top_p: the distribution the response was sampled from.
        "logprobs_mode": "processed_logprobs",
        "per_request_spec_decode_metrics": "none" if speculation is None else "detailed",
        "worker_extension_cls": EXTENSION,
        "use_tqdm_on_load": False,
    }
    return defaults | dict(settings.engine_args) | needed


def speculation_argument(
    speculative_config: Mapping[str, Any] | None, on_cpu: bool
) -> dict[str, Any] | None:
    """vLLM's `speculative_config`, with a draft length that can change while it runs.

    On a CPU vLLM would ignore block verification and draw no probabilities for it: there the
    engine verifies by itself, whatever the method.
    """
    if speculative_config is None:
        return None
    k = speculative_config["num_speculative_tokens"]
    argument = dict(speculative_config)
    argument["num_speculative_tokens_per_batch_size"] = [(1, 1, k)]
    if on_cpu:
        argument.pop("rejection_sample_method", None)
    return argument


def _keep_eager() -> None:
    """Keeps torch.compile off for vLLM's helpers too: compiling them costs seconds per start."""
    import torch._dynamo

    torch._dynamo.config.disable = True
