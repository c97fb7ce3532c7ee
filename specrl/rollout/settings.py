"""What one engine process is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specrl.config.rollout import RolloutConfig


@dataclass(frozen=True)
class EngineSettings:
    """Arguments of one engine replica.

    `model` is a local Hugging Face folder; its safetensors say which tensors a publish must bring.
    `speculative_config` and `engine_args` are vLLM's own, passed through.
    """

    model: str
    max_model_len: int
    dtype: str = "bfloat16"
    seed: int = 0
    speculative_config: Mapping[str, Any] | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def replica_settings(
    model_folder: Path,
    max_model_len: int,
    config: RolloutConfig,
    speculative_config: Mapping[str, Any] | None,
) -> list[EngineSettings]:
    """One record per replica. Seeds differ: equal ones would draw equal responses to a prompt."""
    return [
        EngineSettings(
            model=str(model_folder),
            max_model_len=max_model_len,
            dtype=config.dtype,
            seed=config.seed * config.replicas + replica,
            speculative_config=speculative_config,
            engine_args=dict(config.engine_args),
        )
        for replica in range(config.replicas)
    ]
