"""The EAGLE-3 draft (arXiv:2503.01840): one decoder layer over the policy's hidden states.

Slot t pairs the embedding of token t+1 with the policy's auxiliary states of token t, at position
t, and predicts token t+2.

Legend: T slots (any leading dimensions), H hidden, A auxiliary layers, N query heads, G key/value
heads, E head dimension, D draft vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NUM_AUX_LAYERS = 3


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: `kind` default, linear or llama3; the last four mean nothing elsewhere."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192

    def frequencies(self, head_dim: int) -> Tensor:
        """Radians per position of each pair of dimensions, fp32 [head_dim / 2]."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies = 1.0 / self.theta**exponents
        if self.kind == "linear":
            return frequencies / self.factor
        return self._llama3(frequencies) if self.kind == "llama3" else frequencies

    def _llama3(self, frequencies: Tensor) -> Tensor:
        """Long waves are slowed by `factor`, short ones kept, those between interpolated."""
        turns = self.original_positions * frequencies / (2 * math.pi)
        span = self.high_freq_factor - self.low_freq_factor
        kept = ((turns - self.low_freq_factor) / span).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


@dataclass(frozen=True)
class DraftShape:
    """All that the tensors of a draft depend on.

    `aux_layers` are Hugging Face indices: layer L is the residual stream after L layers.
    `norm_before_residual`: the layer's residual is the normed feature (speculators' default).
    `positions` is the longest sequence.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    draft_vocab: int
    rms_eps: float
    rope: Rope
    aux_layers: tuple[int, ...]
    positions: int
    norm_before_residual: bool = False

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter of `Eagle3`, by name."""
        hidden, query, key = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = {
            "input_layernorm": (hidden,),
            "hidden_norm": (hidden,),
            "self_attn.q_proj": (query, 2 * hidden),
            "self_attn.k_proj": (key, 2 * hidden),
            "self_attn.v_proj": (key, 2 * hidden),
            "self_attn.o_proj": (hidden, query),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (self.intermediate, hidden),
            "mlp.up_proj": (self.intermediate, hidden),
            "mlp.down_proj": (hidden, self.intermediate),
        }
        return {
            "fc.weight": (hidden, NUM_AUX_LAYERS * hidden),
            **{f"midlayer.{name}.weight": shape for name, shape in layer.items()},
            "norm.weight": (hidden,),
            "lm_head.weight": (self.draft_vocab, hidden),
        }


class Linear(nn.Linear):
    """Without bias, and in the dtype of its input: fp32 weights serve bf16 products."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight.to(input.dtype))


class RmsNorm(nn.Module):
    """In the dtype of its input."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.weight.shape, self.weight.to(input.dtype), self.eps)


class Attention(nn.Module):
    """The projections only: which keys a query sees is up to the caller."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        key_size = shape.kv_heads * shape.head_dim
        self.q_proj = Linear(2 * shape.hidden, shape.heads * shape.head_dim)
        self.k_proj = Linear(2 * shape.hidden, key_size)
        self.v_proj = Linear(2 * shape.hidden, key_size)
        self.o_proj = Linear(shape.heads * shape.head_dim, shape.hidden)


class GatedMlp(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.hidden, shape.intermediate)
        self.up_proj = Linear(shape.hidden, shape.intermediate)
        self.down_proj = Linear(shape.intermediate, shape.hidden)

    def forward(self, hidden_TH: Tensor) -> Tensor:
        gated: Tensor = F.silu(self.gate_proj(hidden_TH)) * self.up_proj(hidden_TH)
        down: Tensor = self.down_proj(gated)
        return down


class MidLayer(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.rms_eps)
        self.hidden_norm = RmsNorm(shape.hidden, shape.rms_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.rms_eps)
        self.mlp = GatedMlp(shape)


class Eagle3(nn.Module):
    """Parameters are named as in the checkpoint; it computes in the dtype of what it is given."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = Linear(NUM_AUX_LAYERS * shape.hidden, shape.hidden)
        self.midlayer = MidLayer(shape)
        self.norm = RmsNorm(shape.hidden, shape.rms_eps)
        self.lm_head = Linear(shape.hidden, shape.draft_vocab)

    def features(self, aux_TAH: Tensor) -> Tensor:
        """First-step features [T, H] from the auxiliary states, layers in ascending order."""
        features_TH: Tensor = self.fc(aux_TAH.flatten(-2))
        return features_TH

    def project(
        self, embeds_TH: Tensor, features_TH: Tensor, positions_T: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query [T, N, E], key and value [T, G, E], residual [T, H]; rotated to the positions.

        `features_TH` are those of `features` at the first draft step, the slot's own `finish` of
        the step before at a later one.
        """
        layer, attention = self.midlayer, self.midlayer.self_attn
        normed_TH = layer.hidden_norm(features_TH)
        inputs = torch.cat([layer.input_layernorm(embeds_TH), normed_TH], dim=-1)
        query_TNE, key_TGE, value_TGE = (
            projection(inputs).unflatten(-1, (-1, self.shape.head_dim))
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        cos_TE, sin_TE = self._rotation(positions_T, inputs.dtype)
        residual_TH = normed_TH if self.shape.norm_before_residual else features_TH
        return (
            _rotate(query_TNE, cos_TE, sin_TE),
            _rotate(key_TGE, cos_TE, sin_TE),
            value_TGE,
            residual_TH,
        )

    def finish(self, attended_TNE: Tensor, residual_TH: Tensor) -> Tensor:
        """The layer's output [T, H] before the final norm."""
        hidden_TH = residual_TH + self.midlayer.self_attn.o_proj(attended_TNE.flatten(-2))
        normed_TH = self.midlayer.post_attention_layernorm(hidden_TH)
        prenorm_TH: Tensor = hidden_TH + self.midlayer.mlp(normed_TH)
        return prenorm_TH

    def _rotation(self, positions_T: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        frequencies = self.shape.rope.frequencies(self.shape.head_dim).to(positions_T.device)
        angles = positions_T.float().unsqueeze(-1) * frequencies
        angles = torch.cat([angles, angles], dim=-1).unsqueeze(-2)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat([-second, first], dim=-1) * sin
