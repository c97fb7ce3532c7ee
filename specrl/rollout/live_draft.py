"""What a live learned draft really computes with.

Layers may hold their weights packed and out of reach, fused with others, or shared by accident. So
each matrix is probed: its live layer is applied to fixed inputs, and the answer is compared with
the same product of the published tensors. Everything else is compared as it is.

Legend: P probes, I inputs and O outputs of a layer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

NUM_PROBES = 2
SUM_ROUNDING = 2.0**-16
"""Rounding of an fp32 sum, relative to the sizes of what is summed."""

STACKED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}


@dataclass(frozen=True)
class _Part:
    """One live parameter and the published tensors that make it up, in its order."""

    live: str
    names: tuple[str, ...]


def parts_of(names: Iterable[str]) -> list[_Part]:
    """Live parameters of vLLM's EAGLE-3 models by the names of a checkpoint's tensors."""
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(_live_name(name), []).append(name)
    order = list(STACKED)
    return [
        _Part(live, tuple(sorted(group, key=lambda name: _rank(name, order))))
        for live, group in grouped.items()
    ]


def live_problem(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> str | None:
    """The first published tensor that the live draft does not compute with; None: all are live."""
    for part in parts_of(tensors):
        owner_name, _, leaf = part.live.rpartition(".")
        try:
            layer = model.get_submodule(owner_name)
        except AttributeError:
            return f"the live draft has no {owner_name}, which {part.names[0]} is for"
        published = torch.cat([tensors[name] for name in part.names])
        product = _product(layer) if leaf == "weight" else None
        if product is None:
            right = _same(getattr(layer, leaf), published)
        else:
            right = _same_product(product, published)
        if not right:
            return f"the live draft's {part.live} does not hold {' and '.join(part.names)}"
    return None


def fingerprint(model: torch.nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Digest by live parameter; changes when any of its weights does."""
    digests = {}
    for part in parts_of(names):
        owner_name, _, leaf = part.live.rpartition(".")
        layer = model.get_submodule(owner_name)
        product = _product(layer) if leaf == "weight" else None
        value = getattr(layer, leaf)
        if product is not None:
            value = product(_probes(_inputs(layer), value.dtype))
        digests[part.live] = _digest(value)
    return digests


def _live_name(name: str) -> str:
    if name == "d2t":
        return "draft_id_to_target_id"
    name = name.replace("midlayer.", "layers.0.")
    for part, whole in STACKED.items():
        name = name.replace(f".{part}.", f".{whole}.")
    return name if name.startswith("lm_head") else f"model.{name}"


def _rank(name: str, order: list[str]) -> int:
    return next((i for i, part in enumerate(order) if f".{part}." in name), 0)


def _product(layer: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """How the layer multiplies by its matrix; None for a layer that has none."""
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    if not isinstance(layer, LinearBase | ParallelLMHead):
        return None
    method: Any = layer.quant_method
    device = layer.weight.device
    return lambda probes_PI: method.apply(layer, probes_PI.to(device), None)


def _inputs(layer: Any) -> int:
    size = getattr(layer, "embedding_dim", None) or layer.input_size
    return int(size)


def _probes(inputs: int, dtype: torch.dtype) -> torch.Tensor:
    """Fixed numbers of either sign and different size, so that no change of a weight cancels."""
    generator = torch.Generator().manual_seed(inputs)
    return torch.randn(NUM_PROBES, inputs, generator=generator).to(dtype)


def _same_product(
    product: Callable[[torch.Tensor], torch.Tensor], published_OI: torch.Tensor
) -> bool:
    probes_PI = _probes(published_OI.shape[1], published_OI.dtype)
    live_PO = product(probes_PI)[:, : len(published_OI)].float().cpu()
    probes_PI, weights_OI = probes_PI.float(), published_OI.float()
    right_PO = probes_PI @ weights_OI.T
    size_PO = probes_PI.abs() @ weights_OI.abs().T
    result = float(torch.finfo(published_OI.dtype).eps) * right_PO.abs()
    return bool(((live_PO - right_PO).abs() <= result + SUM_ROUNDING * size_PO).all())


def _same(live: torch.Tensor, published: torch.Tensor) -> bool:
    held = live.data.cpu().to(published.dtype)
    return held.shape == published.shape and torch.equal(held, published)


def _digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    return xxhash.xxh3_64_hexdigest(flat.numpy().data)
