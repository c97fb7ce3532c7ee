"""A snapshot file is taken only in the engine's dtype."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specrl.errors import PublishError
from specrl.rollout.snapshot_file import Expected, read_draft, read_verified, tensor_checksum


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_snapshot_in_another_dtype_than_the_engines_is_refused(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    weight = torch.arange(6).reshape(2, 3).to(dtype)
    path = tmp_path / "snapshot.safetensors"
    save_file({"w": weight}, path)
    checksums = {"w": tensor_checksum(weight)}
    name, other = ("float32", "bfloat16") if dtype == torch.float32 else ("bfloat16", "float32")
    read = read_verified(path, checksums, {"w": Expected((2, 3), name)})
    assert torch.equal(read["w"], weight)
    message = f"w has dtype {name}, the engine's is {other}; publish in rollout.dtype"
    with pytest.raises(PublishError, match=message):
        read_verified(path, checksums, {"w": Expected((2, 3), other)})


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 0, 6], "d2t leaves the policy's 8 tokens"),
        ([-1, 0, 0], "d2t leaves the policy's 8 tokens"),
        ([2, 1, 0], "d2t maps two draft tokens to one policy token"),
    ],
)
def test_a_draft_vocabulary_that_is_not_one_to_one_is_refused(
    tmp_path: Path, offsets: list[int], message: str
) -> None:
    d2t = torch.tensor(offsets)
    path = tmp_path / "draft.safetensors"
    save_file({"d2t": d2t}, path)
    expected = {"d2t": Expected((3,), "int64")}
    with pytest.raises(PublishError, match=message):
        read_draft(path, {"d2t": tensor_checksum(d2t)}, expected, vocab_size=8)
