"""Hugging Face tensors to this rank's Megatron parameters and back, bit for bit.

Legend: V vocabulary rows, H hidden, D head dimension, G key/value groups, Q query heads of a group.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from specrl.errors import UserError
from specrl.learner.layout import ModelShape

Gather = Callable[[Tensor, int], Tensor]
"""Concatenates a parameter's shards of all tensor-parallel ranks along a dimension."""

# Megatron's local layers name a norm on its own; Transformer Engine's fuse it into the next linear.
_NORMS = {
    "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
}
_ROW_PARALLEL = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}
_VOCABULARY = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "output_layer.weight": "lm_head.weight",
}


@dataclass(frozen=True)
class Shard:
    """This rank's part of `ways` tensor-parallel parts."""

    rank: int
    ways: int

    def take(self, whole: Tensor, dim: int) -> Tensor:
        """This rank's part of `whole` along `dim`."""
        return whole.chunk(self.ways, dim)[self.rank]


class HuggingFaceFolder:
    """Tensors of a model folder by name, read on demand."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise UserError(f"{folder} holds no *.safetensors file; save the model in that format")
        self._files: list[Any] = [safe_open(file, framework="pt") for file in files]
        self._where = {name: file for file in self._files for name in file.keys()}  # noqa: SIM118 (not a dict)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._where:
            raise UserError(f"the model folder has no tensor {name}; is the download complete?")
        tensor: Tensor = self._where[name].get_tensor(name)
        return tensor


@torch.no_grad()
def load_weights(
    parameters: Mapping[str, Tensor], source: HuggingFaceFolder, shape: ModelShape, shard: Shard
) -> None:
    """Fills every Megatron parameter from the folder, casting to its dtype."""
    for name, parameter in parameters.items():
        parameter.copy_(_import(name, source, shape, shard))


def _import(name: str, source: HuggingFaceFolder, shape: ModelShape, shard: Shard) -> Tensor:
    if name in _VOCABULARY:
        return shard.take(_pad_rows(source[_VOCABULARY[name]], shard.ways), 0)
    if name == "decoder.final_layernorm.weight":
        return source["model.norm.weight"]
    prefix, part = _layer(name)
    if part in _NORMS:
        return source[prefix + _NORMS[part]]
    if part in _ROW_PARALLEL:
        return shard.take(source[prefix + _ROW_PARALLEL[part]], 1)
    if part == "self_attention.linear_qkv.weight":
        q, k, v = (source[f"{prefix}self_attn.{x}_proj.weight"] for x in "qkv")
        return shard.take(_fuse_qkv(q, k, v, shape), 0)
    assert part == "mlp.linear_fc1.weight", name
    gate, up = (source[f"{prefix}mlp.{x}_proj.weight"] for x in ("gate", "up"))
    return torch.cat([shard.take(gate, 0), shard.take(up, 0)])


def export_weights(
    parameters: Mapping[str, Tensor], shape: ModelShape, ways: int, gather: Gather
) -> Iterator[tuple[str, Tensor]]:
    """(Hugging Face name, whole tensor) pairs; every tensor-parallel rank must iterate."""
    for name, parameter in parameters.items():
        yield from _export(name, parameter.detach(), shape, ways, gather)


def _export(
    name: str, tensor: Tensor, shape: ModelShape, ways: int, gather: Gather
) -> Iterator[tuple[str, Tensor]]:
    if name in _VOCABULARY:
        yield _VOCABULARY[name], gather(tensor, 0)[: shape.vocab]
        return
    if name == "decoder.final_layernorm.weight":
        yield "model.norm.weight", tensor
        return
    prefix, part = _layer(name)
    if part in _NORMS:
        yield prefix + _NORMS[part], tensor
    elif part in _ROW_PARALLEL:
        yield prefix + _ROW_PARALLEL[part], gather(tensor, 1)
    elif part == "self_attention.linear_qkv.weight":
        for letter, whole in zip("qkv", _split_qkv(gather(tensor, 0), shape), strict=True):
            yield f"{prefix}self_attn.{letter}_proj.weight", whole
    else:
        assert part == "mlp.linear_fc1.weight", name
        halves = gather(tensor, 0).view(ways, 2, -1, shape.hidden)
        yield f"{prefix}mlp.gate_proj.weight", halves[:, 0].reshape(-1, shape.hidden)
        yield f"{prefix}mlp.up_proj.weight", halves[:, 1].reshape(-1, shape.hidden)


def _layer(name: str) -> tuple[str, str]:
    """Hugging Face prefix of the layer and Megatron's name inside it."""
    decoder, layers, index, part = name.split(".", 3)
    assert (decoder, layers) == ("decoder", "layers"), name
    return f"model.layers.{index}.", part


def _pad_rows(whole_VH: Tensor, ways: int) -> Tensor:
    missing = -len(whole_VH) % ways
    return torch.nn.functional.pad(whole_VH, (0, 0, 0, missing)) if missing else whole_VH


def _fuse_qkv(q: Tensor, k: Tensor, v: Tensor, shape: ModelShape) -> Tensor:
    """Megatron keeps, per key/value group, its query heads, then its key, then its value."""
    groups = (x.view(shape.kv_heads, -1, shape.head_dim, shape.hidden) for x in (q, k, v))
    return torch.cat(list(groups), dim=1).reshape(-1, shape.hidden)


def _split_qkv(fused: Tensor, shape: ModelShape) -> tuple[Tensor, ...]:
    queries = shape.heads // shape.kv_heads
    groups = fused.view(shape.kv_heads, queries + 2, shape.head_dim, shape.hidden)
    q, k, v = torch.split(groups, [queries, 1, 1], dim=1)
    return tuple(x.reshape(-1, shape.hidden) for x in (q, k, v))
