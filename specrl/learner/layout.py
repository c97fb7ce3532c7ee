"""What the learner must know before anything heavy starts: model shape, parallel layout, cores."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrl.config.learner import LearnerConfig
from specrl.errors import UserError
from specrl.openmp import openmp_environment
from specrl.types import Placement

ARCHITECTURES = {"LlamaForCausalLM": False, "Qwen3ForCausalLM": True}
"""Hugging Face architectures the learner trains, and whether they normalise queries and keys."""

SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    "vocab_size",
)


@dataclass(frozen=True)
class ModelShape:
    """The figures of a Hugging Face config.json that define the network."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    norm_eps: float
    rope_theta: float
    tied: bool
    qk_norm: bool


def read_shape(model_folder: Path | str) -> ModelShape:
    """Raises `UserError` naming what the learner cannot train."""
    path = Path(model_folder) / "config.json"
    if not path.is_file():
        raise UserError(f"{path} does not exist; the model must be a Hugging Face folder")
    return shape_of(json.loads(path.read_text()), path)


def shape_of(config: Mapping[str, Any], path: Path | str) -> ModelShape:
    """The figures of a config.json; `path` names it in the `UserError` that `read_shape` raises."""
    architecture = (config.get("architectures") or ["(none)"])[0]
    if architecture == "Qwen3MoeForCausalLM":
        raise UserError(
            f"{path}: {architecture} needs expert parallelism, which the learner does not have; "
            "use a dense Llama or Qwen3 model"
        )
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UserError(
            f"{path}: architecture {architecture} cannot be trained; use one of {known}"
        )
    _refuse_unsupported(path, config)
    for name in SIZES:
        size = config.get(name)
        if not isinstance(size, int) or size < 1:
            raise UserError(
                f"{path}: {name}={size} in its config must be a whole number of at least 1; "
                "correct it"
            )
    heads = int(config["num_attention_heads"])
    return ModelShape(
        layers=int(config["num_hidden_layers"]),
        hidden=int(config["hidden_size"]),
        ffn=int(config["intermediate_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        vocab=int(config["vocab_size"]),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=float(_rope(config).get("rope_theta", config.get("rope_theta", 1e4))),
        tied=bool(config.get("tie_word_embeddings", False)),
        qk_norm=ARCHITECTURES[architecture],
    )


def check_layout(model_folder: Path | str, config: LearnerConfig) -> None:
    """Raises `UserError` when the model cannot be trained, or not with this tensor parallelism."""
    check_shape(read_shape(model_folder), config)


def check_shape(shape: ModelShape, config: LearnerConfig) -> None:
    """Raises `UserError` when the tensor parallelism does not divide the model."""
    ways = config.tensor_parallel
    counts = {
        "attention heads": shape.heads,
        "key/value heads": shape.kv_heads,
        "MLP channels": shape.ffn,
    }
    for what, count in counts.items():
        if count % ways:
            raise UserError(
                f"learner.tensor_parallel={ways} does not divide the model's {count} {what}; "
                f"use a divisor of {count}, or learner.data_parallel"
            )


def world_size(config: LearnerConfig) -> int:
    """Learner processes."""
    return config.tensor_parallel * config.data_parallel


def rank_placements(config: LearnerConfig, num_gpus: int) -> list[Placement]:
    """One placement per rank: `num_gpus` each, `config.cores` (or all usable) split evenly."""
    cores = config.cores or sorted(os.sched_getaffinity(0))
    ranks = world_size(config)
    share = max(1, len(cores) // ranks)
    placements = []
    for rank in range(ranks):
        own = [cores[(rank * share + i) % len(cores)] for i in range(share)]
        bound = tuple(own) if config.cores else ()
        placements.append(Placement(bound, num_gpus, learner_env(len(own))))
    return placements


def learner_env(threads: int) -> dict[str, str]:
    """Environment of a learner process with `threads` OpenMP threads."""
    return openmp_environment(threads) | {
        "MKL_NUM_THREADS": str(threads),
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _refuse_unsupported(path: Path | str, config: Mapping[str, Any]) -> None:
    kind = _rope(config).get("rope_type", _rope(config).get("type", "default"))
    if kind != "default":
        raise UserError(f"{path}: rope scaling {kind!r} cannot be trained; use a model without it")
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            raise UserError(f"{path}: {key}=true cannot be trained; use a model without biases")
    if config.get("use_sliding_window"):
        raise UserError(f"{path}: use_sliding_window=true cannot be trained; set it to false")
    if config.get("hidden_act", "silu") != "silu":
        raise UserError(f"{path}: hidden_act={config['hidden_act']} cannot be trained; only silu")
