"""Writes a safetensors file tensor by tensor, with a checksum of each."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from specrl.types import DraftWeights, WeightSnapshot

HEADER_BYTES_PER_TENSOR = 256  # a name of up to 130 characters and its figures
_DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int64: "I64"}


def write_snapshot(
    folder: Path,
    version: int,
    dtype: torch.dtype,
    tensors: Iterable[tuple[str, Tensor]],
    count: int,
) -> WeightSnapshot:
    """`folder/policy-v{version}.safetensors` in `dtype`, complete or absent.

    `count` is an upper bound of the number of tensors (it sizes the header).
    """
    path = folder / f"policy-v{version}.safetensors"
    return WeightSnapshot(version, path, _write(path, dtype, tensors, count))


def write_draft(
    folder: Path, version: int, dtype: torch.dtype, tensors: Mapping[str, Tensor]
) -> DraftWeights:
    """`folder/draft-v{version}.safetensors`, floats in `dtype`, complete or absent."""
    path = folder / f"draft-v{version}.safetensors"
    return DraftWeights(path, _write(path, dtype, tensors.items(), len(tensors)))


def _write(
    path: Path, dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]], count: int
) -> dict[str, str]:
    """Checksums of the tensors in the file."""
    partial = path.with_suffix(".partial")
    header: dict[str, object] = {}
    checksums: dict[str, str] = {}
    reserved = HEADER_BYTES_PER_TENSOR * (count + 1)
    with partial.open("wb", buffering=0) as file:
        file.seek(8 + reserved)
        offset = 0
        for name, tensor in tensors:
            stored = dtype if tensor.is_floating_point() else tensor.dtype
            data = _bytes_of(tensor, stored)
            checksums[name] = xxhash.xxh3_64_hexdigest(data)
            header[name] = {
                "dtype": _DTYPES[stored],
                "shape": list(tensor.shape),
                "data_offsets": [offset, offset + len(data)],
            }
            offset += len(data)
            _write_all(file.fileno(), data)
        text = json.dumps(header).encode()
        assert len(text) <= reserved, (len(text), reserved)
        file.seek(0)
        # The format allows trailing spaces in the header.
        file.write(reserved.to_bytes(8, "little") + text.ljust(reserved))
    os.replace(partial, path)
    return checksums


def _bytes_of(tensor: Tensor, dtype: torch.dtype) -> memoryview:
    flat = tensor.detach().to(device="cpu", dtype=dtype).contiguous().view(-1)
    array: Any = flat.view(torch.uint8).numpy()
    return memoryview(array)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
