"""A snapshot file is taken only in the engine's dtype."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specrl.errors import PublishError
from specrl.rollout.snapshot_file import read_verified, tensor_checksum


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_snapshot_in_another_dtype_than_the_engines_is_refused(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    weight = torch.arange(6).reshape(2, 3).to(dtype)
    path = tmp_path / "snapshot.safetensors"
    save_file({"w": weight}, path)
    checksums, shapes = {"w": tensor_checksum(weight)}, {"w": (2, 3)}
    name, other = ("float32", "bfloat16") if dtype == torch.float32 else ("bfloat16", "float32")
    assert torch.equal(read_verified(path, checksums, shapes, name)["w"], weight)
    message = f"w has dtype {name}, the engine's is {other}; publish in rollout.dtype"
    with pytest.raises(PublishError, match=message):
        read_verified(path, checksums, shapes, other)
