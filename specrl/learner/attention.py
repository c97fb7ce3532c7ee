"""Core attention of the learner: rotary positions, then scaled dot products over a packed batch.

The batch layout does not pass through Megatron's layers: `AttentionPlan` is bound to the
attention modules before each forward pass, and still bound in its backward pass.

Legend: T packed tokens, S padded slots, D head dimension, N rows that attend together, Q query
positions, K key positions, G key/value heads, M query positions of all query heads of one G.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specrl.learner.packing import Block, PackedBatch

SHORT_KEYS = 8  # keys per head-dimension feature up to which scores are kept for the backward pass


@dataclass(frozen=True)
class _BlockPlan:
    prompt_rows_N: Tensor
    mask_NQK: Tensor  # additive, [N or 1, 1, Q, K]
    width: int


@dataclass(frozen=True)
class AttentionPlan:
    """A packed batch as the attention modules need it, on the device."""

    cos_TD: Tensor
    sin_TD: Tensor
    slots_S: Tensor
    padding_S: Tensor | None
    places_T: Tensor
    prompt_count: int
    prompt_width: int
    blocks: tuple[_BlockPlan, ...]


def plan_attention(
    batch: PackedBatch, head_dim: int, rope_theta: float, dtype: torch.dtype, device: torch.device
) -> AttentionPlan:
    """Angles in fp32, rounded to `dtype` as Hugging Face does."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse = 1.0 / (rope_theta**exponents)
    angles_T = torch.from_numpy(batch.positions_T).float()[:, None] * inverse[None, :]
    angles_TD = torch.cat([angles_T, angles_T], dim=-1)
    padded = torch.from_numpy(np.flatnonzero(batch.padding_S))
    return AttentionPlan(
        cos_TD=angles_TD.cos().to(device, dtype)[:, None, :],
        sin_TD=angles_TD.sin().to(device, dtype)[:, None, :],
        slots_S=torch.from_numpy(batch.slots_S).to(device),
        padding_S=padded.to(device) if len(padded) else None,
        places_T=torch.from_numpy(batch.places_T).to(device),
        prompt_count=len(batch.prompt_lengths),
        prompt_width=batch.prompt_width,
        blocks=tuple(_plan_block(batch, block, dtype, device) for block in batch.blocks),
    )


def _plan_block(
    batch: PackedBatch, block: Block, dtype: torch.dtype, device: torch.device
) -> _BlockPlan:
    lengths = batch.prompt_lengths[block.prompt_rows]
    uniform = bool((lengths == lengths[0]).all())
    prompt_NK = np.arange(batch.prompt_width)[None, :] < lengths[: 1 if uniform else None, None]
    causal_QQ = np.tri(block.width, dtype=np.bool_)
    rows = len(prompt_NK)
    visible_NQK = np.concatenate(
        [
            np.broadcast_to(prompt_NK[:, None, :], (rows, block.width, batch.prompt_width)),
            np.broadcast_to(causal_QQ[None], (rows, block.width, block.width)),
        ],
        axis=2,
    )
    mask = torch.zeros(visible_NQK.shape, dtype=dtype)
    mask.masked_fill_(torch.from_numpy(~visible_NQK), float("-inf"))
    rows_N = torch.from_numpy(np.ascontiguousarray(block.prompt_rows)).to(device)
    return _BlockPlan(rows_N, mask.unsqueeze(1).to(device), block.width)


class PackedAttention(torch.nn.Module):
    """Megatron's core-attention interface over the bound plan."""

    plan: AttentionPlan

    def __init__(self, config: Any, **_: Any) -> None:
        super().__init__()
        assert config.softmax_scale is None

    def forward(self, query: Tensor, key: Tensor, value: Tensor, _mask: None, **_: Any) -> Tensor:
        """[T, 1, heads, D] each (fewer key/value heads) to [T, 1, heads * D]."""
        plan = self.plan
        query_S = _pad(_rotate(query.squeeze(1), plan), plan)
        key_S = _pad(_rotate(key.squeeze(1), plan), plan)
        value_S = _pad(value.squeeze(1), plan)
        out_S = torch.cat(_attend(query_S, key_S, value_S, plan), dim=0)
        out_T: Tensor = _unpad(out_S, plan)
        return out_T.flatten(1).unsqueeze(1)


def bind(model: torch.nn.Module, plan: AttentionPlan) -> None:
    """Makes `plan` the layout of the next forward pass of `model`."""
    for module in model.modules():
        if isinstance(module, PackedAttention):
            module.plan = plan


def _rotate(x_THD: Tensor, plan: AttentionPlan) -> Tensor:
    low, high = x_THD.chunk(2, dim=-1)
    return x_THD * plan.cos_TD + torch.cat([-high, low], dim=-1) * plan.sin_TD


def _attend(query_S: Tensor, key_S: Tensor, value_S: Tensor, plan: AttentionPlan) -> list[Tensor]:
    """Outputs per padded region, flattened to slots."""
    rows, width = plan.prompt_count, plan.prompt_width
    sizes = [rows * width, *(len(block.prompt_rows_N) * block.width for block in plan.blocks)]
    queries, keys, values = (torch.split(x, sizes) for x in (query_S, key_S, value_S))
    prompt_keys, prompt_values = (_rows(x[0], rows, width) for x in (keys, values))
    outputs = [_sdpa(_rows(queries[0], rows, width), prompt_keys, prompt_values, None)]
    for i, block in enumerate(plan.blocks, start=1):
        count = len(block.prompt_rows_N)
        own_keys, own_values = (_rows(x[i], count, block.width) for x in (keys, values))
        all_keys = torch.cat([prompt_keys.index_select(0, block.prompt_rows_N), own_keys], dim=1)
        all_values = torch.cat(
            [prompt_values.index_select(0, block.prompt_rows_N), own_values], dim=1
        )
        query = _rows(queries[i], count, block.width)
        outputs.append(_sdpa(query, all_keys, all_values, block.mask_NQK))
    return outputs


def _rows(x_S: Tensor, rows: int, width: int) -> Tensor:
    return x_S.view(rows, width, *x_S.shape[1:])


def _sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """[N, length, heads, D] each to [N * length, heads, D]; causal where mask is None."""
    repeat = query.shape[2] // key.shape[2]
    if query.device.type == "cpu" and _is_short(query, key):
        if mask is None:
            mask = query.new_full((query.shape[1], key.shape[1]), -torch.inf).triu(1)[None, None]
        short: Tensor = _short_attention(query, key, value, mask)
        return short
    if repeat > 1:
        key, value = (x.repeat_interleave(repeat, dim=2) for x in (key, value))
    out = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
    )
    return out.transpose(1, 2).flatten(0, 1)


def _is_short(query: Tensor, key: Tensor) -> bool:
    """Scores are fewer than a few times the queries' own elements, so keeping them is cheap."""
    return key.shape[1] <= SHORT_KEYS * query.shape[-1]


class _ShortAttention(torch.autograd.Function):
    """Plain matrix products: twice as fast as torch's CPU kernel in the backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask_NQK: Tensor) -> Tensor:
        ctx.scale = query.shape[-1] ** -0.5
        queries_NGMD = _by_group(query, key.shape[2]).mul_(ctx.scale)
        keys_NGKD, values_NGKD = (x.transpose(1, 2).contiguous() for x in (key, value))
        scores_NGMK = queries_NGMD @ keys_NGKD.transpose(2, 3)
        by_head = scores_NGMK.view(*scores_NGMK.shape[:2], -1, *mask_NQK.shape[2:])
        by_head.add_(mask_NQK.unsqueeze(1))
        weights_NGMK = scores_NGMK.softmax(-1)  # fp32 inside the kernel
        ctx.save_for_backward(queries_NGMD, keys_NGKD, values_NGKD, weights_NGMK)
        return _by_position(weights_NGMK @ values_NGKD, query.shape).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries_NGMD, keys_NGKD, values_NGKD, weights_NGMK = ctx.saved_tensors
        rows, groups = queries_NGMD.shape[:2]
        shape = (rows, grad.shape[0] // rows, *grad.shape[1:])
        grad_NGMD = _by_group(grad.view(shape), groups)
        grad_values = weights_NGMK.transpose(2, 3) @ grad_NGMD
        slope_NGMK = torch.ops.aten._softmax_backward_data(
            grad_NGMD @ values_NGKD.transpose(2, 3), weights_NGMK, -1, grad.dtype
        )
        grad_keys = slope_NGMK.transpose(2, 3) @ queries_NGMD
        grad_query = _by_position((slope_NGMK @ keys_NGKD).mul_(ctx.scale), shape)
        return grad_query, grad_keys.transpose(1, 2), grad_values.transpose(1, 2), None


def _by_group(x: Tensor, groups: int) -> Tensor:
    """[N, Q, heads, D] to a copy [N, G, M, D]."""
    rows, width, heads, dim = x.shape
    grouped = x.view(rows, width, groups, heads // groups, dim).permute(0, 2, 3, 1, 4)
    return grouped.clone(memory_format=torch.contiguous_format).view(rows, groups, -1, dim)


def _by_position(x_NGMD: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[N, G, M, D] to `shape`, [N, Q, heads, D]."""
    rows, width, heads, dim = shape
    split = x_NGMD.view(rows, x_NGMD.shape[1], -1, width, dim).permute(0, 3, 1, 2, 4)
    return split.reshape(rows, width, heads, dim)


class _Pad(torch.autograd.Function):
    """Packed tokens to padded slots. Both directions gather, which is far faster than index_add."""

    @staticmethod
    def forward(ctx: Any, x_T: Tensor, plan: AttentionPlan) -> Tensor:
        ctx.plan = plan
        return x_T.index_select(0, plan.slots_S)

    @staticmethod
    def backward(ctx: Any, grad_S: Tensor) -> tuple[Tensor, None]:
        return grad_S.index_select(0, ctx.plan.places_T), None


class _Unpad(torch.autograd.Function):
    """Padded slots to packed tokens; slots of padding get no gradient."""

    @staticmethod
    def forward(ctx: Any, x_S: Tensor, plan: AttentionPlan) -> Tensor:
        ctx.plan = plan
        return x_S.index_select(0, plan.places_T)

    @staticmethod
    def backward(ctx: Any, grad_T: Tensor) -> tuple[Tensor, None]:
        grad_S = grad_T.index_select(0, ctx.plan.slots_S)
        if ctx.plan.padding_S is not None:
            grad_S.index_fill_(0, ctx.plan.padding_S, 0.0)
        return grad_S, None


_short_attention: Any = _ShortAttention.apply
_pad: Any = _Pad.apply
_unpad: Any = _Unpad.apply
