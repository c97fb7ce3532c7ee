"""What decides a model's layout is read without making the model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from specrl.config import tree
from specrl.config.compose import load
from specrl.errors import UserError
from specrl.learner.layout import shape_of
from specrl.models.peek import peek
from specrl.models.published import PUBLISHED


def local(folder: Path):
    return load(["model=qwen3_8b", f"model.path={folder}", "model.revision=null"]).model


def whole(folder: Path, **values: object) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 12, **values}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"a": np.zeros(1)}, folder / "model.safetensors")
    return folder


def test_a_local_folder_is_read(tmp_path: Path) -> None:
    found = peek(local(whole(tmp_path)))
    assert found is not None
    assert found["num_attention_heads"] == 12


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("config.json", "has no config.json; download"),
        ("tokenizer.json", "has no tokenizer"),
        ("model.safetensors", "has no .*safetensors"),
        ("", "neither a folder nor a hub id"),
    ],
)
def test_a_local_folder_that_is_not_whole_names_what_it_lacks(
    tmp_path: Path, lacks: str, says: str
) -> None:
    whole(tmp_path)
    (tmp_path / lacks).unlink() if lacks else shutil.rmtree(tmp_path)
    with pytest.raises(UserError, match=f"^model.path=.*{says}"):
        peek(local(tmp_path))


def test_a_context_beyond_the_models_positions_is_told_without_making_it() -> None:
    with pytest.raises(UserError, match="max_model_len=1024 is above the 512 positions of tiny"):
        peek(load(["model=tiny", "model.max_model_len=1024"]).model)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\0"])
def test_a_damaged_config_is_one_line_that_names_the_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"^model\.path=.*config\.json .*; download the model"):
        peek(local(tmp_path))


def test_every_hub_model_that_is_listed_is_known_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    listed = [load([f"model={name}"]).model for name in tree.options("model")]
    hub = [config for config in listed if config.source == "hub"]
    assert len(hub) == len(PUBLISHED)
    assert [peek(config) for config in hub] == [PUBLISHED[config.path] for config in hub]


@pytest.mark.parametrize(
    ("path", "output_heads", "parameters"),
    [("Qwen/Qwen3-8B", 1, 8_190_735_360), ("Qwen/Qwen3-0.6B", 0, 596_049_920)],  # the hub's count
)
def test_the_published_figures_make_as_many_parameters_as_the_model_has(
    path: str, output_heads: int, parameters: int
) -> None:
    shape = shape_of(PUBLISHED[path], path)
    attention = shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    norms = 2 * shape.hidden + 2 * shape.head_dim
    layer = attention + 3 * shape.hidden * shape.ffn + norms
    vocabulary = (1 + output_heads) * shape.vocab * shape.hidden
    assert shape.layers * layer + vocabulary + shape.hidden == parameters


@pytest.mark.slow
def test_the_wheel_is_read_once_for_many_points() -> None:
    config = load().model
    described = peek(config)
    assert described is not None
    assert described["num_attention_heads"] == 9
    assert peek(config) is described
