"""The folder of a model that has the weights of a snapshot and everything else of its base."""

import json
import shutil
from pathlib import Path

from specrl.durable import files_below
from specrl.models.cache import MARKER

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".gguf")


def write_model_folder(base: Path, weights: Path, dtype: str, folder: Path) -> None:
    """Fills the empty `folder` with `weights` (safetensors, Hugging Face names) and `base`'s rest.

    `dtype` is that of the weights ("bfloat16"), which config.json then names.
    """
    from safetensors.torch import load_file, save_file

    for path in files_below(base):
        if path.name != MARKER and not path.name.endswith(_WEIGHTS):
            target = folder / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    config = json.loads((folder / "config.json").read_text())
    config.pop("torch_dtype", None)  # the key of older versions
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=2))
    # Hugging Face's loaders ask for the format in the file's metadata.
    save_file(load_file(weights), folder / "model.safetensors", metadata={"format": "pt"})
