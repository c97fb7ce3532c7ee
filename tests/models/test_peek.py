"""What decides a model's layout is read without making the model."""

import json
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.errors import UserError
from specrl.models.peek import peek


def local(folder: Path):
    return load(["model=qwen3_8b", f"model.path={folder}", "model.revision=null"]).model


def test_a_local_folder_is_read(tmp_path: Path) -> None:
    assert peek(local(tmp_path)) is None
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 12}))
    assert peek(local(tmp_path)) == {"num_attention_heads": 12}


@pytest.mark.parametrize("text", ["", "[1]", "{", "\0"])
def test_a_damaged_config_is_one_line_that_names_the_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"^model\.path=.*config\.json .*; download the model"):
        peek(local(tmp_path))


@pytest.mark.slow
def test_the_wheel_is_read_once_for_many_points() -> None:
    config = load().model
    described = peek(config)
    assert described is not None
    assert described["num_attention_heads"] == 9
    assert peek(config) is described
