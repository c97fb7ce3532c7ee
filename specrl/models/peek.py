"""The config.json of a model, without making or downloading anything."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from specrl.config.model import ModelConfig
from specrl.durable import read_json
from specrl.hub import looks_local
from specrl.models.architecture import ARCHITECTURES, COMPLETE
from specrl.models.published import PUBLISHED
from specrl.models.tiny import DEFAULTS
from specrl.models.wheel import find_gguf


def peek(config: ModelConfig) -> Mapping[str, Any] | None:
    """What decides the model's layout, under config.json's names.

    A hub model whose config.json is not in the local hub cache is described as it was published if
    specrl lists it; None for any other. Raises `UserError` for a wheel that is not installed and a
    config.json that cannot be read.
    """
    match config.source:
        case "tiny":
            values = {**DEFAULTS, **(config.tiny or {})}
            return {"architectures": [ARCHITECTURES[str(values["model_type"])]], **values}
        case "wheel":
            return _gguf_config(find_gguf(config.path))
        case _:
            path = _hub_config(config)
            if path is None:
                return PUBLISHED.get(config.path)
            return read_json(path, f"model.path={config.path}", COMPLETE)


def _hub_config(config: ModelConfig) -> Path | None:
    if looks_local(config.path):
        path = Path(config.path).expanduser() / "config.json"
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(config.path, "config.json", revision=config.revision)
    return Path(found) if isinstance(found, str) else None


@cache  # seconds of reading, and a sweep asks for every point
def _gguf_config(gguf: Path) -> Mapping[str, Any]:
    from gguf import GGUFReader

    reader = GGUFReader(str(gguf))

    def value(name: str) -> Any:
        return reader.fields[name].contents()

    kind = value("general.architecture")
    return {
        "architectures": [ARCHITECTURES[kind]],
        "num_hidden_layers": value(f"{kind}.block_count"),
        "hidden_size": value(f"{kind}.embedding_length"),
        "intermediate_size": value(f"{kind}.feed_forward_length"),
        "num_attention_heads": value(f"{kind}.attention.head_count"),
        "num_key_value_heads": value(f"{kind}.attention.head_count_kv"),
        "vocab_size": len(value("tokenizer.ggml.tokens")),
    }
