"""Writes a safetensors file tensor by tensor, with a checksum of each."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from specrl.types import WeightSnapshot

HEADER_BYTES_PER_TENSOR = 256  # a name of up to 130 characters and its figures
_DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32"}


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
    partial = path.with_suffix(".partial")
    header: dict[str, object] = {}
    checksums: dict[str, str] = {}
    reserved = HEADER_BYTES_PER_TENSOR * (count + 1)
    with partial.open("wb", buffering=0) as file:
        file.seek(8 + reserved)
        offset = 0
        for name, tensor in tensors:
            data = _bytes_of(tensor, dtype)
            checksums[name] = xxhash.xxh3_64_hexdigest(data)
            header[name] = {
                "dtype": _DTYPES[dtype],
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
    return WeightSnapshot(version=version, path=path, checksums=checksums)


def _bytes_of(tensor: Tensor, dtype: torch.dtype) -> memoryview:
    flat = tensor.detach().to(device="cpu", dtype=dtype).contiguous().view(-1)
    array: Any = flat.view(torch.uint8).numpy()
    return memoryview(array)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
