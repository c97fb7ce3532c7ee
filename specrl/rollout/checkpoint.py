"""A snapshot file is checked completely before any of it reaches a live model."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open

from specrl.errors import EngineError, PublishError

Shapes = Mapping[str, tuple[int, ...]]
OUTPUT_LAYER = "lm_head.weight"


def expected_shapes(model_folder: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor a snapshot must bring: those of the folder's safetensors.

    A tied output layer is no tensor of its own. Raises `EngineError` when the folder has none.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(model_folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                shapes[name] = tuple(file.get_slice(name).get_shape())
    if not shapes:
        raise EngineError(f"{model_folder} has no *.safetensors; save the policy in that format")
    config = json.loads((model_folder / "config.json").read_text())
    if config.get("tie_word_embeddings"):
        shapes.pop(OUTPUT_LAYER, None)
    return shapes


def read_verified(
    path: Path, checksums: Mapping[str, str], shapes: Shapes
) -> dict[str, torch.Tensor]:
    """The tensors of the file, memory-mapped, after names, shapes and checksums were found right.

    Raises `PublishError` naming the first tensor that is missing, unexpected, misshapen or corrupt.
    """
    _same_names("checksum list", set(checksums), set(shapes))
    try:
        with safe_open(path, framework="pt") as file:
            _same_names(str(path), set(file.keys()), set(shapes))
            tensors = {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError) as error:
        raise PublishError(f"{path} is no complete safetensors file: {error}") from error
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name]:
            raise PublishError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, the engine's is {shapes[name]}"
            )
        digest = tensor_checksum(tensor)
        if digest != checksums[name]:
            raise PublishError(f"{path}: {name} has checksum {digest}, not {checksums[name]}")
    return tensors


def tensor_checksum(tensor: torch.Tensor) -> str:
    """xxh3-64 hex digest of the tensor's bytes."""
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return xxhash.xxh3_64_hexdigest(flat.numpy().data)


def _same_names(where: str, given: set[str], expected: set[str]) -> None:
    if missing := sorted(expected - given):
        raise PublishError(f"{where} lacks {len(missing)} tensors, among them {missing[0]}")
    if extra := sorted(given - expected):
        raise PublishError(f"{where} has {len(extra)} unexpected tensors, among them {extra[0]}")
