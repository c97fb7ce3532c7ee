"""config.json of an EAGLE-3 draft: what others write, and what we write."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specrl.algo.aux_layers import aux_layers
from specrl.drafter.eagle3 import DraftShape, Rope
from specrl.drafter.policy_folder import policy_config
from specrl.errors import UserError

ROPE_KINDS = ("default", "linear", "llama3")
# Variants that change the arithmetic of the draft and that `Eagle3` does not have.
VARIANTS = ("norm_before_fc", "fc_norm", "norm_output", "attention_bias", "mlp_bias")


def fresh_shape(folder: Path, layers: Sequence[int], draft_vocab: int) -> DraftShape:
    """A draft with the head shape of the policy in `folder`.

    It keeps the policy's rotary embedding where `Rope` has that kind, and the plain one with the
    policy's base elsewhere: the draft is trained with it, so that any would do.
    """
    values = policy_config(folder)
    kind = _rope_values(values).get("rope_type", "default")
    return DraftShape(
        hidden=values["hidden_size"],
        intermediate=values["intermediate_size"],
        heads=values["num_attention_heads"],
        kv_heads=values["num_key_value_heads"],
        head_dim=values["head_dim"],
        vocab=values["vocab_size"],
        draft_vocab=draft_vocab,
        rms_eps=values["rms_norm_eps"],
        rope=_rope(values) if kind in ROPE_KINDS else Rope(_rope_values(values)["rope_theta"]),
        aux_layers=tuple(layers),
        positions=values["max_position_embeddings"],
    )


def read_shape(
    values: Mapping[str, Any], key: str, policy_layers: int | None, asked: Sequence[int]
) -> DraftShape:
    """Shape in a draft's config.json: ours, SGLang's, or nested as speculators writes it.

    Without `policy_layers` a config that names no layers gets `asked`. Raises `UserError`.
    """
    outer = dict(values)
    inner = values.get("transformer_layer_config")
    flat = {**inner, **outer} if isinstance(inner, Mapping) else outer
    try:
        _check_kind(flat, key)
        heads, hidden = _size(flat, "num_attention_heads"), _size(flat, "hidden_size")
        vocab = _size(inner or flat, "vocab_size")
        groups = int(flat.get("num_key_value_heads") or heads)
        if heads % groups:
            raise ValueError(f"num_attention_heads={heads}, no multiple of {groups} key heads")
        return DraftShape(
            hidden=hidden,
            intermediate=_size(flat, "intermediate_size"),
            heads=heads,
            kv_heads=groups,
            head_dim=int(flat.get("head_dim") or hidden // heads),
            vocab=vocab,
            draft_vocab=int(flat.get("draft_vocab_size") or vocab),
            rms_eps=_positive("rms_norm_eps", flat.get("rms_norm_eps", 1e-6)),
            rope=_rope(flat),
            aux_layers=_layers(flat, policy_layers, asked),
            positions=int(flat.get("max_position_embeddings", 2048)),
            norm_before_residual=bool(
                flat.get("norm_before_residual", "speculators_model_type" in flat)
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            named = str(error) if str(error).startswith(key) else f"{key}: {error}"
            raise UserError(named) from None
        raise UserError(f"{key}: config.json lacks or misstates {error}; restore it") from None


def config_values(shape: DraftShape, dtype: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """config.json that vLLM, SGLang and Transformers read, with our facts in it.

    vLLM and speculators count the layers passed (`aux_layers`), SGLang counts from the first
    layer's output: one less, in its own block.
    """
    rope = _rope_entries(shape.rope)
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "vocab_size": shape.vocab,
        "draft_vocab_size": shape.draft_vocab,
        "rms_norm_eps": shape.rms_eps,
        "rope_theta": shape.rope.theta,
        "rope_scaling": rope if shape.rope.kind != "default" else None,
        "rope_parameters": {"rope_theta": shape.rope.theta, **rope},
        "max_position_embeddings": shape.positions,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_before_residual": shape.norm_before_residual,
        "tie_word_embeddings": False,
        "dtype": dtype,
        "torch_dtype": dtype,
        "bos_token_id": None,
        "eos_token_id": None,
        "eagle_aux_hidden_state_layer_ids": list(shape.aux_layers),
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in shape.aux_layers],
        },
        "specrl": dict(facts),
    }


def _size(values: Mapping[str, Any], name: str) -> int:
    """Raises `ValueError` for what is no whole number above 0."""
    size = values[name]
    if type(size) is not int or size < 1:
        raise ValueError(f"{name}={size}, which must be a whole number above 0")
    return size


def _positive(name: str, value: Any) -> float:
    """Raises `ValueError` for what is no positive number."""
    if not 0.0 < float(value) < math.inf:
        raise ValueError(f"{name}={value}, which must be above 0")
    return float(value)


def _check_kind(flat: Mapping[str, Any], key: str) -> None:
    kind = (
        flat.get("speculators_model_type") or (flat.get("architectures") or ["no architecture"])[0]
    )
    # Early EAGLE-3 heads call themselves LlamaForCausalLM; their tensors tell them apart.
    if not str(kind).lower().endswith("eagle3") and kind not in (
        "Eagle3LlamaForCausalLM",
        "LlamaForCausalLM",
        "Eagle3Speculator",
    ):
        raise UserError(
            f"{key} is a draft of another kind ({kind}), not EAGLE-3 over Llama layers; "
            "give an EAGLE-3 folder (architecture LlamaForCausalLMEagle3)"
        )
    layers = flat.get("num_hidden_layers", 1)
    found = [name for name in VARIANTS if flat.get(name)]
    eagle = flat.get("eagle_config")
    if isinstance(eagle, Mapping):
        found += [name for name in VARIANTS if eagle.get(name)]
        if eagle.get("use_aux_hidden_state") is False:
            found.append("use_aux_hidden_state=false")
    if layers != 1 or found:
        what = found[0] if found else f"num_hidden_layers={layers}"
        raise UserError(
            f"{key} is an EAGLE-3 variant that is not supported ({what}); "
            "give a draft of one plain Llama layer"
        )


def _layers(
    flat: Mapping[str, Any], policy_layers: int | None, asked: Sequence[int]
) -> tuple[int, ...]:
    """As vLLM reads them; SGLang's own block counts one less, which only `asked` can settle."""
    named = flat.get("eagle_aux_hidden_state_layer_ids")
    if named:
        return tuple(sorted(map(int, named)))
    block = flat.get("eagle_config")
    named = block.get("eagle_aux_hidden_state_layer_ids") if isinstance(block, Mapping) else None
    if not named:
        return aux_layers((), policy_layers) if policy_layers else tuple(asked)
    passed = tuple(sorted(layer + 1 for layer in named))
    return passed if passed == tuple(asked) else tuple(sorted(named))


def _rope(values: Mapping[str, Any]) -> Rope:
    rope = _rope_values(values)
    kind = rope.get("rope_type", "default")
    if kind not in ROPE_KINDS:
        raise UserError(
            f"rope_type={kind} is not supported in a draft; use one of {', '.join(ROPE_KINDS)}"
        )
    return Rope(
        theta=_positive("rope_theta", rope["rope_theta"]),
        kind=kind,
        factor=float(rope.get("factor", 1.0)),
        low_freq_factor=float(rope.get("low_freq_factor", 1.0)),
        high_freq_factor=float(rope.get("high_freq_factor", 4.0)),
        original_positions=int(rope.get("original_max_position_embeddings", 8192)),
    )


def _rope_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Transformers 5 keeps all in rope_parameters, older files in rope_theta and rope_scaling."""
    older = dict(values.get("rope_scaling") or {})
    older.setdefault("rope_type", older.pop("type", "default"))
    older["rope_theta"] = values.get("rope_theta", 10000.0)
    return {**older, **(values.get("rope_parameters") or {})}


def _rope_entries(rope: Rope) -> dict[str, Any]:
    if rope.kind == "default":
        return {"rope_type": "default"}
    if rope.kind == "linear":
        return {"rope_type": "linear", "factor": rope.factor}
    return {
        "rope_type": rope.kind,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_positions,
    }
