"""Small policies and drafts on disk, and ways to damage them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LAYERS = (1, 2, 3)
VOCAB, HIDDEN = 40, 16
TARGET_IDS = (0, 2, 3, 5, 8, 13, 21, 34)


def save_policy(folder: Path, **changes: Any) -> Path:
    """A policy's config and the tensors that a fresh draft takes from it."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 24,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
        "rope_theta": 5000.0,
        **changes,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(7)
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    tensors = {
        "model.embed_tokens.weight": torch.randn(vocab, hidden, generator=random),
        "model.norm.weight": torch.rand(hidden, generator=random),
    }
    queries = config["num_attention_heads"] * config["head_dim"]
    keys, inner = config["num_key_value_heads"] * config["head_dim"], config["intermediate_size"]
    sizes = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    for name, size in sizes.items():
        tensors[f"{last}{name}.weight"] = torch.randn(size, generator=random)
    save_file(tensors, folder / "model.safetensors")
    return folder


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def drop_facts(folder: Path) -> None:
    """As if somebody else had written the draft."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    del values["specrl"]
    path.write_text(json.dumps(values))


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
