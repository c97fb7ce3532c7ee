"""What a draft takes from the Hugging Face folder of its policy."""

import json
from pathlib import Path
from typing import Any

import xxhash
from safetensors import safe_open
from torch import Tensor

from specrl.errors import UserError

IDENTITY = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def read_json(path: Path, key: str) -> dict[str, Any]:
    """A JSON object. Raises `UserError` that begins with `key` ("init.path=...")."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{key} has no {path.name}; give a Hugging Face folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{key}: {path.name} cannot be read ({error}); restore the folder"
        ) from None
    if not isinstance(values, dict):
        raise UserError(f"{key}: {path.name} is not a JSON object; restore the folder")
    return values


def policy_config(folder: Path) -> dict[str, Any]:
    """config.json of the policy, with the counts that may be left out filled in."""
    values = read_json(folder / "config.json", f"policy {folder}")
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
        model = read_json(tokenizer, f"policy {folder}").get("model", {})
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
