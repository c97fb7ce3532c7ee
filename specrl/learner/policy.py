"""The policy network: Megatron's GPTModel up to the final norm; `head.py` does the vocabulary part.

Legend: T packed tokens, H hidden.
"""

import importlib.util
import logging
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from specrl.learner.attention import PackedAttention, bind, plan_attention
from specrl.learner.layout import ModelShape
from specrl.learner.modules import GatedMLP, RMSNorm
from specrl.learner.packing import PackedBatch


class Policy(GPTModel):  # type: ignore[misc]  # untyped base
    """Token ids to final hidden states.

    Forward hooks on `decoder.layers[i]` see (hidden states [T, 1, H], None) of that layer.
    """

    shape: ModelShape

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states [T, H] after the final norm, on the model's device and in its dtype."""
        weight = self.head_weight
        plan = plan_attention(
            batch, self.shape.head_dim, self.shape.rope_theta, weight.dtype, weight.device
        )
        bind(self, plan)
        ids_T = torch.from_numpy(batch.token_ids_T).to(weight.device)
        embedded = self.embedding(input_ids=ids_T[None], position_ids=None)
        hidden: Tensor = self.decoder(hidden_states=embedded, attention_mask=None)
        return hidden.squeeze(1)

    @property
    def head_weight(self) -> torch.nn.Parameter:
        """This rank's rows of the output matrix, rows that pad the vocabulary included."""
        tied = self.share_embeddings_and_output_weights
        weight: torch.nn.Parameter = (
            self.embedding.word_embeddings.weight if tied else self.output_layer.weight
        )
        return weight

    @property
    def vocabulary_weight(self) -> Tensor:
        """`head_weight` without the rows that pad the vocabulary."""
        return self.head_weight[: self._vocabulary_rows]

    @property
    def vocabulary_grad(self) -> Tensor:
        """Main gradient of `vocabulary_weight`; exists once the optimizer is built."""
        weight: Any = self.head_weight
        grad: Tensor = weight.main_grad
        return grad[: self._vocabulary_rows]

    @property
    def _vocabulary_rows(self) -> int:
        rows = len(self.head_weight)
        start = int(parallel_state.get_tensor_model_parallel_rank()) * rows
        return max(0, min(rows, self.shape.vocab - start))


def build_policy(shape: ModelShape, dtype: torch.dtype, recompute: bool) -> Policy:
    """Uninitialised weights on this rank's device; parallel state must be up."""
    ways = parallel_state.get_tensor_model_parallel_world_size()
    # Megatron warns, once per layer, that it does not know GatedMLP.
    logging.getLogger("megatron.core.transformer.transformer_layer").setLevel(logging.ERROR)
    policy = Policy(
        config=_transformer_config(shape, dtype, recompute, ways),
        transformer_layer_spec=_block_spec(shape),
        vocab_size=-(-shape.vocab // ways) * ways,
        max_sequence_length=1,  # sizes nothing: positions come with each batch
        share_embeddings_and_output_weights=shape.tied,
        position_embedding_type="none",
    )
    policy.shape = shape
    for parameter in policy.parameters():
        # Every matrix is sharded, every vector replicated; Megatron's gradient norm asks for this.
        parameter.tensor_model_parallel = parameter.dim() == 2
    device = torch.device("cuda", torch.cuda.current_device()) if _cuda() else torch.device("cpu")
    policy.to(device=device, dtype=dtype)
    return policy


def _transformer_config(
    shape: ModelShape, dtype: torch.dtype, recompute: bool, ways: int
) -> TransformerConfig:
    full: dict[str, Any] = {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        ffn_hidden_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        kv_channels=shape.head_dim,
        layernorm_epsilon=shape.norm_eps,
        normalization="RMSNorm",
        qk_layernorm=shape.qk_norm,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        tensor_model_parallel_size=ways,
        calculate_per_token_loss=True,  # gradients are summed, not averaged, over ranks
        perform_initialization=False,
        use_cpu_initialization=not _cuda(),
        persist_layer_norm=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        **(full if recompute else {}),
    )


def _block_spec(shape: ModelShape) -> TransformerBlockSubmodules:
    """Transformer Engine's layers on a GPU that has it, Megatron's own elsewhere."""
    engine = _cuda() and importlib.util.find_spec("transformer_engine") is not None
    if engine:
        layer = get_gpt_layer_with_transformer_engine_spec(qk_layernorm=shape.qk_norm)
    else:
        layer = get_gpt_layer_local_spec(qk_layernorm=shape.qk_norm, normalization="RMSNorm")
        layer.submodules.input_layernorm = RMSNorm
        layer.submodules.pre_mlp_layernorm = RMSNorm
        layer.submodules.mlp.module = GatedMLP
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = PackedAttention
    if shape.qk_norm and not engine:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    return TransformerBlockSubmodules(layer_specs=[layer] * shape.layers, layer_norm=RMSNorm)


def _cuda() -> bool:
    return torch.cuda.is_available()
