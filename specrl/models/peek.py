"""The config.json of a model, without making or downloading anything."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from specrl.config.drafter import DraftModelConfig
from specrl.config.init import InitConfig
from specrl.config.model import ModelConfig
from specrl.durable import read_json
from specrl.errors import UserError
from specrl.hub import looks_local
from specrl.models.architecture import (
    ARCHITECTURES,
    COMPLETE,
    check_folder,
    check_length,
    check_weights,
)
from specrl.models.cache import is_intact
from specrl.models.prepare import local_folder
from specrl.models.published import PUBLISHED
from specrl.models.tiny import tiny_values
from specrl.models.wheel import find_gguf, wheel_place

HEAD_WEIGHTS = ("*.safetensors", "pytorch_model.bin")


def peek(config: ModelConfig) -> Mapping[str, Any] | None:
    """What decides the model's layout, under config.json's names.

    A hub model whose config.json is not in the local hub cache is described as it was published if
    specrl lists it; None for any other. Raises `UserError` for a wheel that is not installed, a
    local folder that is missing or incomplete, a context that is too long, a config.json that
    cannot be read.
    """
    described: Mapping[str, Any] | None
    match config.source:
        case "tiny":
            values = tiny_values(config)
            described = {"architectures": [ARCHITECTURES[str(values["model_type"])]], **values}
        case "wheel":
            described = _wheel_config(find_gguf(config.path), wheel_place(config))
        case _:
            described = _hub_config("model", config.path, config.revision)
            if looks_local(config.path):
                check_folder(local_folder("model", config.path, config.revision), config)
    if described is not None:
        check_length(described, config)
    return described


def peek_draft_model(config: DraftModelConfig) -> Mapping[str, Any] | None:
    """As `peek` of the model that drafts."""
    described = _hub_config("drafter", config.model, config.revision, "model")
    if looks_local(config.model):
        folder = local_folder("drafter", config.model, config.revision, "model")
        check_weights(folder, f"drafter.model={config.model}")
    return described


def peek_head(config: InitConfig) -> Mapping[str, Any] | None:
    """config.json of the draft in `init.path`; None for a hub's that is not here.

    Raises `UserError` for a folder that is missing or holds no draft.
    """
    assert config.path is not None
    described = _hub_config("init", config.path, config.revision)
    if looks_local(config.path):
        folder = local_folder("init", config.path, config.revision)
        if not any(path for pattern in HEAD_WEIGHTS for path in folder.glob(pattern)):
            raise UserError(
                f"init.path={config.path} has no {' or '.join(HEAD_WEIGHTS)}; give a complete "
                "draft folder"
            )
    return described


def _hub_config(
    group: str, path: str, revision: str | None, path_key: str = "path"
) -> Mapping[str, Any] | None:
    """config.json of a local folder, or of a hub model in the local cache or among `PUBLISHED`."""
    key = f"{group}.{path_key}={path}"
    if looks_local(path):
        folder = local_folder(group, path, revision, path_key)
        given = f"give a complete Hugging Face folder: {group}.{path_key}=/path/to/folder"
        return read_json(folder / "config.json", key, COMPLETE if group == "model" else given)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(path, "config.json", revision=revision)
    return read_json(Path(found), key, COMPLETE) if isinstance(found, str) else PUBLISHED.get(path)


@cache  # a sweep asks for every point
def _wheel_config(gguf: Path, converted: Path) -> Mapping[str, Any]:
    if is_intact(converted):
        return read_json(converted / "config.json", str(converted), COMPLETE)
    return _gguf_config(gguf)


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
