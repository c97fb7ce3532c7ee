"""Figures of the hub models that specrl lists, for machines that have no copy of them yet."""

from collections.abc import Mapping
from typing import Any

from specrl.models.architecture import ARCHITECTURES

QWEN3_0_6B: Mapping[str, Any] = {
    "architectures": [ARCHITECTURES["qwen3"]],
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151936,
}
QWEN3_8B: Mapping[str, Any] = {
    "architectures": [ARCHITECTURES["qwen3"]],
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
}

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen3-0.6B": QWEN3_0_6B,
    "Qwen/Qwen3-8B": QWEN3_8B,
    "Qwen/Qwen3-8B-Base": QWEN3_8B,
    "Qwen/Qwen3-235B-A22B": {"architectures": [ARCHITECTURES["qwen3_moe"]]},
}
"""By hub id, what decides the layout, as in the config.json that the model is published with.

Of an architecture that the learner cannot train the name is enough.
"""
