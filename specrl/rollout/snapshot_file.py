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
    path: Path, checksums: Mapping[str, str], shapes: Shapes, dtype: str
) -> dict[str, torch.Tensor]:
    """The tensors of the file, memory-mapped, after all of them were found right.

    `dtype` is the engine's, by torch's name ("bfloat16"): a silent cast would serve other weights
    than the checksums say. Raises `PublishError` naming the first tensor that is missing,
    unexpected, corrupt or of another shape or dtype.
    """
    _same_names("checksum list", set(checksums), set(shapes))
    try:
        with safe_open(path, framework="pt") as file:
            _same_names(str(path), set(file.keys()), set(shapes))
            tensors = {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError) as error:
        raise PublishError(f"{path} is no complete safetensors file: {error}") from error
    for name, tensor in tensors.items():
        problem = _problem(tensor, shapes[name], dtype, checksums[name])
        if problem is not None:
            raise PublishError(f"{path}: {name} has {problem}")
    return tensors


def tensor_checksum(tensor: torch.Tensor) -> str:
    """xxh3-64 hex digest of the tensor's bytes."""
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return xxhash.xxh3_64_hexdigest(flat.numpy().data)


def _problem(tensor: torch.Tensor, shape: tuple[int, ...], dtype: str, checksum: str) -> str | None:
    if tuple(tensor.shape) != shape:
        return f"shape {tuple(tensor.shape)}, the engine's is {shape}"
    given = str(tensor.dtype).removeprefix("torch.")
    if given != dtype:
        return f"dtype {given}, the engine's is {dtype}; publish in rollout.dtype"
    digest = tensor_checksum(tensor)
    return None if digest == checksum else f"checksum {digest}, not {checksum}"


def _same_names(where: str, given: set[str], expected: set[str]) -> None:
    if missing := sorted(expected - given):
        raise PublishError(f"{where} lacks {len(missing)} tensors, among them {missing[0]}")
    if extra := sorted(given - expected):
        raise PublishError(f"{where} has {len(extra)} unexpected tensors, among them {extra[0]}")
