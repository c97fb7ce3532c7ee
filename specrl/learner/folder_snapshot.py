"""A model folder's own weights as a snapshot: an engine without a learner can serve them."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from specrl.learner.snapshot import write_snapshot
from specrl.types import WeightSnapshot

OUTPUT_LAYER = "lm_head.weight"


def folder_snapshot(model: Path, serving_dtype: str, folder: Path, version: int) -> WeightSnapshot:
    """What a learner that has just loaded `model` exports, in `folder`.

    `serving_dtype` is torch's name of it ("bfloat16"). A tied output layer is no tensor of its own.
    """
    tied = json.loads((model / "config.json").read_text()).get("tie_word_embeddings", False)
    paths = {name: path for path in sorted(model.glob("*.safetensors")) for name in _names(path)}
    if tied:
        paths.pop(OUTPUT_LAYER, None)

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for name, path in paths.items():
            with safe_open(path, framework="pt") as file:
                yield name, file.get_tensor(name)

    dtype: torch.dtype = getattr(torch, serving_dtype)
    return write_snapshot(folder, version, dtype, tensors(), len(paths))


def _names(path: Path) -> list[str]:
    with safe_open(path, framework="pt") as file:
        return list(file.keys())
