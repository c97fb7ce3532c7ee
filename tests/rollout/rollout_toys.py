"""Toy policies, their snapshots, and what an independent Hugging Face forward says about them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from safetensors.torch import load_file, save_file

from specrl.types import DraftWeights, Rollout, WeightSnapshot

VOCAB = 8
MAX_MODEL_LEN = 64
LAYERS = 3
HIDDEN = 64
AUX_LAYERS = (0, 1, 2)
Tensors = dict[str, torch.Tensor]

# B sequences, T tokens, V vocabulary


def toy(
    seed: int, hidden: int = HIDDEN, layers: int = LAYERS, heads: int = 2, tied: bool = False
) -> Any:
    """A Llama of vocabulary 8 whose distribution is far from flat."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_MODEL_LEN,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(0, (0.3 if tied else 1.5) / weight.shape[-1] ** 0.5)
    return model


def toy_draft(seed: int, vocab: int, dtype: torch.dtype = torch.float32) -> Tensors:
    """An EAGLE-3 draft of the toy policy with random weights, over the last `vocab` tokens."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, size: float = 1.0) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) * size / columns**0.5).to(dtype)

    ones = torch.ones(HIDDEN, dtype=dtype)
    layer = {
        "hidden_norm.weight": ones.clone(),
        "input_layernorm.weight": ones.clone(),
        "post_attention_layernorm.weight": ones.clone(),
        "self_attn.q_proj.weight": matrix(64, 2 * HIDDEN),
        "self_attn.k_proj.weight": matrix(32, 2 * HIDDEN),
        "self_attn.v_proj.weight": matrix(32, 2 * HIDDEN),
        "self_attn.o_proj.weight": matrix(HIDDEN, 64),
        "mlp.gate_proj.weight": matrix(2 * HIDDEN, HIDDEN),
        "mlp.up_proj.weight": matrix(2 * HIDDEN, HIDDEN),
        "mlp.down_proj.weight": matrix(HIDDEN, 2 * HIDDEN),
    }
    tensors = {f"midlayer.{name}": tensor for name, tensor in layer.items()}
    tensors |= {
        "fc.weight": matrix(HIDDEN, 3 * HIDDEN),
        "norm.weight": ones.clone(),
        "lm_head.weight": matrix(vocab, HIDDEN, size=1.5),
    }
    if vocab < VOCAB:
        tensors["d2t"] = torch.full((vocab,), VOCAB - vocab)
    return tensors


def save_draft(draft: Tensors, folder: Path, config: dict[str, Any]) -> None:
    """A folder as vLLM reads it; `config` overrides."""
    folder.mkdir(parents=True)
    values = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": MAX_MODEL_LEN,
        "vocab_size": VOCAB,
        "draft_vocab_size": len(draft["lm_head.weight"]),
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        "specrl": {"aux_layers": list(AUX_LAYERS)},
    }
    (folder / "config.json").write_text(json.dumps(values | config))
    save_file(draft, folder / "model.safetensors")


def draft_weights(draft: Tensors, folder: Path) -> DraftWeights:
    """As the learner would publish them, beside the policy's file."""
    path = folder / "draft.safetensors"
    save_file(draft, path)
    return DraftWeights(path, checksums(path))


def save_tokenizer(folder: Path) -> None:
    """Token i is the letter number i; texts are the letters in a row."""
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({letter: i for i, letter in enumerate("abcdefgh")}, "a"))
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def snapshot(model: Any, folder: Path, version: int) -> WeightSnapshot:
    """The model's weights as the learner would publish them."""
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    return WeightSnapshot(version, path, checksums(path))


def checksums(path: Path) -> dict[str, str]:
    sums = {}
    for name, tensor in load_file(path).items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        sums[name] = xxhash.xxh3_64_hexdigest(raw)
    return sums


@torch.no_grad()
def constrained_logprobs(
    model: Any, ids_BT: torch.Tensor, temperature: float, top_p: float
) -> torch.Tensor:
    """Log-probs [B, T, V] after temperature and nucleus (arXiv:1904.09751), in float64."""
    logits_BTV = model(ids_BT).logits.double() / temperature
    probs_BTV = logits_BTV.softmax(-1)
    sorted_BTV, order_BTV = probs_BTV.sort(-1, descending=True)
    outside_BTV = sorted_BTV.cumsum(-1) - sorted_BTV >= top_p
    mask_BTV = torch.zeros_like(outside_BTV).scatter(-1, order_BTV, outside_BTV)
    return logits_BTV.masked_fill(mask_BTV, -torch.inf).log_softmax(-1)


def worst_logprob_error(model: Any, rollouts: Sequence[Rollout], **sampling: float) -> float:
    """Of the rollouts' log-probs; those of equal lengths share a forward."""
    alike: dict[tuple[int, int], list[Rollout]] = {}
    for rollout in rollouts:
        lengths = len(rollout.prompt.token_ids), len(rollout.token_ids)
        alike.setdefault(lengths, []).append(rollout)
    return max(batch_error(model, batch, **sampling) for batch in alike.values())


def batch_error(
    model: Any, rollouts: Sequence[Rollout], temperature: float = 1.0, top_p: float = 1.0
) -> float:
    """R response tokens; every rollout has prompt and response of the same lengths."""
    start = len(rollouts[0].prompt.token_ids) - 1
    ids_BT = torch.tensor([r.prompt.token_ids + r.token_ids for r in rollouts])
    logprobs_BRV = constrained_logprobs(model, ids_BT, temperature, top_p)[:, start:-1]
    expected_BR = logprobs_BRV.gather(-1, ids_BT[:, start + 1 :, None])[..., 0].numpy()
    ours_BR = np.stack([r.rollout_logprobs for r in rollouts])
    return float(np.abs(ours_BR - expected_BR).max())
