"""Which models specrl can run, checked on a local Hugging Face folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrl.config.model import ModelConfig
from specrl.durable import read_json
from specrl.errors import UserError

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
COMPLETE = (
    "download the model again or give a complete Hugging Face folder: model.source=hub "
    "model.path=/path/to/folder"
)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_folder(folder: Path, config: ModelConfig) -> None:
    """Raises `UserError` unless `folder` holds a complete, supported model for `config`."""
    check_config(folder, config)
    whose = f"model.path={config.path}"
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise _incomplete(whose, folder, f"tokenizer ({' or '.join(TOKENIZER_FILES)})")
    check_weights(folder, whose)


def check_weights(folder: Path, whose: str) -> None:
    """Raises `UserError` naming a safetensors file that is missing, cut off or no such file."""
    from safetensors import SafetensorError, safe_open

    missing = _missing_weights(folder)
    if missing:
        raise _incomplete(whose, folder, missing)
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="np"):
                pass
        except (SafetensorError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path} is damaged ({reason}); fetch or save it again") from None


def check_config(folder: Path, config: ModelConfig) -> None:
    """Raises `UserError` when config.json alone shows that the model cannot be used."""
    values = read_json(folder / "config.json", str(folder), COMPLETE)
    _check_architecture(folder, values)
    check_length(values, config)


def _check_architecture(folder: Path, values: Mapping[str, Any]) -> None:
    known = ", ".join(ARCHITECTURES.values())
    found = values.get("architectures") or ["no architecture"]
    if found[0] not in ARCHITECTURES.values():
        raise UserError(f"{folder}: {found[0]} is not supported; use a model of type {known}")


def check_length(values: Mapping[str, Any], config: ModelConfig) -> None:
    """Raises `UserError` for a context that a config.json, `values`, has no positions for."""
    longest = values.get("max_position_embeddings")
    if isinstance(longest, int) and config.max_model_len > longest:
        raise UserError(
            f"model.max_model_len={config.max_model_len} is above the {longest} positions of "
            f"{config.name}; use model.max_model_len={longest} or less"
        )


def _incomplete(whose: str, folder: Path, missing: str) -> UserError:
    return UserError(
        f"{whose}: {folder} has no {missing}; give a complete Hugging Face folder (config.json, "
        "tokenizer files and safetensors weights)"
    )


def _missing_weights(folder: Path) -> str | None:
    """The first file that is not there; None when all are."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(read_json(index, str(folder), COMPLETE).get("weight_map", {}).values()))
        return next((shard for shard in shards if not (folder / shard).is_file()), None)
    return None if any(folder.glob("*.safetensors")) else "*.safetensors"
