"""A snapshot file is checked completely before any of it reaches a live model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open

from specrl.errors import EngineError, PublishError

OUTPUT_LAYER = "lm_head.weight"
DRAFT_MAP = "d2t"
NOT_SERVED = "t2d"
"""A draft's map from the policy's vocabulary; the engine needs the other one only."""

INTEGER_TYPES = ("I64", "I32")


@dataclass(frozen=True)
class Expected:
    """What one tensor of a snapshot must be; `dtype` by torch's name."""

    shape: tuple[int, ...]
    dtype: str


def expected_tensors(model_folder: Path, dtype: str) -> dict[str, Expected]:
    """Every tensor a snapshot must bring: those of the folder's safetensors, in the engine's dtype.

    A tied output layer is no tensor of its own; integers are always int64. Raises `EngineError`
    when the folder has none.
    """
    expected: dict[str, Expected] = {}
    for path in sorted(model_folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                tensor = file.get_slice(name)
                kind = "int64" if tensor.get_dtype() in INTEGER_TYPES else dtype
                expected[name] = Expected(tuple(tensor.get_shape()), kind)
    if not expected:
        raise EngineError(f"{model_folder} has no *.safetensors; save the model in that format")
    config = json.loads((model_folder / "config.json").read_text())
    if config.get("tie_word_embeddings") and NOT_SERVED not in expected:
        expected.pop(OUTPUT_LAYER, None)
    expected.pop(NOT_SERVED, None)
    return expected


def read_verified(
    path: Path, checksums: Mapping[str, str], expected: Mapping[str, Expected]
) -> dict[str, torch.Tensor]:
    """The tensors of the file, memory-mapped, after all of them were found right.

    The dtype counts: a silent cast would serve other weights than the checksums say. Raises
    `PublishError` naming the first tensor that is missing, unexpected, corrupt or of another shape
    or dtype.
    """
    _same_names(f"{path}: checksum list", set(checksums), set(expected))
    try:
        with safe_open(path, framework="pt") as file:
            _same_names(str(path), set(file.keys()), set(expected))
            tensors = {name: file.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        raise PublishError(f"{path} is no complete safetensors file: {error}") from error
    for name, tensor in tensors.items():
        problem = _problem(tensor, expected[name], checksums[name])
        if problem is not None:
            raise PublishError(f"{path}: {name} has {problem}")
    return tensors


def tensor_checksum(tensor: torch.Tensor) -> str:
    """xxh3-64 hex digest of the tensor's bytes."""
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return xxhash.xxh3_64_hexdigest(flat.numpy().data)


def read_draft(
    path: Path, checksums: Mapping[str, str], expected: Mapping[str, Expected], vocab_size: int
) -> dict[str, torch.Tensor]:
    """`read_verified` for a learned draft, whose vocabulary map must be one to one.

    A policy token that two draft tokens stand for would be proposed with another probability than
    the verification takes it for.
    """
    tensors = read_verified(path, checksums, expected)
    if (offsets_D := tensors.get(DRAFT_MAP)) is not None:
        ids_D = torch.arange(len(offsets_D)) + offsets_D
        if int(ids_D.min()) < 0 or int(ids_D.max()) >= vocab_size:
            raise PublishError(f"{path}: {DRAFT_MAP} leaves the policy's {vocab_size} tokens")
        if len(torch.unique(ids_D)) < len(ids_D):
            raise PublishError(f"{path}: {DRAFT_MAP} maps two draft tokens to one policy token")
    return tensors


def _problem(tensor: torch.Tensor, expected: Expected, checksum: str) -> str | None:
    if tuple(tensor.shape) != expected.shape:
        return f"shape {tuple(tensor.shape)}, the engine's is {expected.shape}"
    given = str(tensor.dtype).removeprefix("torch.")
    if given != expected.dtype:
        return f"dtype {given}, the engine's is {expected.dtype}; publish in rollout.dtype"
    digest = tensor_checksum(tensor)
    return None if digest == checksum else f"checksum {digest}, not {checksum}"


def _same_names(where: str, given: set[str], expected: set[str]) -> None:
    if missing := sorted(expected - given):
        raise PublishError(f"{where} lacks {len(missing)} tensors, among them {missing[0]}")
    if extra := sorted(given - expected):
        raise PublishError(f"{where} has {len(extra)} unexpected tensors, among them {extra[0]}")
