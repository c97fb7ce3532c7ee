"""What a draft takes from the Hugging Face folder of its policy."""

import json
from pathlib import Path
from typing import Any

import xxhash
from safetensors import safe_open
from torch import Tensor

from specrl.durable import read_json
from specrl.errors import UserError

COMPLETE = "give a complete Hugging Face folder"
IDENTITY = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def policy_config(folder: Path) -> dict[str, Any]:
    """config.json of the policy, with the counts that may be left out filled in."""
    values = read_json(folder / "config.json", f"policy {folder}", COMPLETE)
    heads = values["num_attention_heads"]
    defaults = {
        "num_key_value_heads": heads,
        "head_dim": values["hidden_size"] // heads,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
    }
    return {**defaults, **{name: value for name, value in values.items() if value is not None}}


def policy_fingerprint(folder: Path) -> str:
    """Equal for policies that one draft can serve; weights do not count, they move in RL."""
    values = policy_config(folder)
    identity: dict[str, object] = {name: values.get(name) for name in IDENTITY}
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        model = read_json(tokenizer, f"policy {folder}", COMPLETE).get("model", {})
        identity["tokens"] = len(model.get("vocab", ()))
    return xxhash.xxh3_64_hexdigest(json.dumps(identity, sort_keys=True).encode())


def policy_tensor(folder: Path, *names: str) -> Tensor:
    """The first of `names` that the policy's safetensors files hold."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            held = set(file.keys())
            found = next((name for name in names if name in held), None)
            if found is not None:
                tensor: Tensor = file.get_tensor(found)
                return tensor
    raise UserError(f"policy {folder} has no tensor {' or '.join(names)}; give a complete folder")
