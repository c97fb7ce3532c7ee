"""A warm-started model is built once, under a key of what it depends on, and is a whole model."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from specrl.build_warm_start import (
    arithmetic,
    build_warm_start,
    cache_key,
    worked_examples,
)
from specrl.config.compose import load
from specrl.config.train import TrainConfig
from specrl.config.warm_start import WarmStartConfig
from specrl.errors import UserError
from specrl.fakes import FakeTelemetry
from specrl.models.prepare import prepare_model
from specrl.models.prompt_format import load_tokenizer
from specrl.warm_start import RECORD_FILE, read_record

ROOT = Path(__file__).parents[1]
TEACH = {"prompt_style": "raw", "examples": 40, "validation_prompts": 4}


def warm(**changes) -> WarmStartConfig:
    return WarmStartConfig(**{**TEACH, **changes})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    return prepare_model(load(["model=tiny", f"model.cache_dir={cache}"]).model)


def test_the_key_follows_the_recipe_and_the_base(base: Path, tmp_path: Path) -> None:
    key = cache_key(warm(), base)
    assert cache_key(warm(), base) == key
    changes = {"examples": 41, "learning_rate": 1e-3, "seed": 1, "difficulty": 2, "passes": 2}
    changed = [cache_key(warm(**{name: value}), base) for name, value in changes.items()]
    (tmp_path / "config.json").write_text((base / "config.json").read_text())
    assert len({key, cache_key(warm(), tmp_path), *changed}) == 7


def test_a_solution_ends_with_the_end_token_and_decodes_to_its_text(base: Path) -> None:
    task, tokenizer = arithmetic(warm(), base), load_tokenizer(base)
    examples = worked_examples(warm(), task, base, 500)
    assert len({example.prompt_ids for example in examples}) == 40
    for prompt, example in zip(task.train(0, 40), examples, strict=True):
        *text, end = example.response_ids
        assert end == tokenizer.eos_token_id
        assert tokenizer.decode(text) == task.worked_solution(prompt)


def test_questions_that_are_not_to_be_had_name_the_keys_of_the_warm_start(base: Path) -> None:
    with pytest.raises(UserError, match=r"^model\.warm_start\.generators=chains is not known"):
        arithmetic(warm(generators=["chains"]), base)
    few = warm(generator_args={"max_terms": 2, "max_digits": 1}, examples=5000)
    with pytest.raises(UserError, match=r"^model\.warm_start\.examples \+ model\.warm_start\.val"):
        arithmetic(few, base)
    with pytest.raises(UserError, match=r"model\.max_model_len=16; raise it or lower"):
        worked_examples(warm(), arithmetic(warm(), base), base, 16)


def test_the_choice_with_a_warm_start_differs_from_the_plain_one_in_nothing_else() -> None:
    plain, taught = load(["model=smollm2_135m"]).model, load(["model=smollm2_135m_math"]).model
    assert plain.warm_start is None
    assert replace(taught, name=plain.name, warm_start=None) == plain


def test_rl_think_cpu_asks_for_shorter_sums_than_the_warm_start_taught() -> None:
    config = load(["experiment=rl_think_cpu"])
    taught = asdict(config.model.warm_start)
    for name in ("generators", "difficulty", "prompt_style", "instruction"):
        assert getattr(config.task, name) == taught[name]
    asked, shown = config.task.generator_args, taught["generator_args"]
    assert all(asked[name] == shown[name] for name in ("min_digits", "max_digits"))
    assert asked["max_terms"] < shown["min_terms"]
    assert config.rollout.max_tokens == taught["max_tokens"]
    zero = load(["experiment=rl_zero_cpu"])
    assert (zero.model.warm_start, zero.task.prompt_style) == (None, "raw")


@pytest.mark.parametrize("value", ["examples=0", "passes=0", "learning_rate=0", "prompt_style=x"])
def test_values_out_of_range_are_named_in_one_line(value: str) -> None:
    name, _, given = value.partition("=")
    with pytest.raises(UserError, match=rf"^model\.warm_start\.{name}={given}"):
        load(["model=smollm2_135m_math", f"model.warm_start.{value}"])


def test_a_knob_of_the_warm_start_is_refused_where_there_is_none() -> None:
    with pytest.raises(UserError, match="exists only with model=smollm2_135m_math"):
        load(["model=smollm2_135m", "model.warm_start.examples=5"])


def taught_in(folder: Path) -> TrainConfig:
    """A tiny model after 30 supervised steps, cached in `folder`."""
    config = load(["debug=tiny", "tracking=none", f"model.cache_dir={folder}"])
    recipe = WarmStartConfig(
        prompt_style="raw",
        generator_args={"max_digits": 1, "max_terms": 2},
        examples=120,
        passes=2,
        batch_examples=8,
        learning_rate=3e-3,
        validation_prompts=8,
        samples=4,
        max_tokens=24,
    )
    config.model = replace(config.model, name="taught", warm_start=recipe)
    return config


CHILD = """
import sys
from pathlib import Path
from specrl.build_warm_start import build_warm_start
from specrl.models.prepare import prepare_model
from specrl.telemetry.console import ConsoleSink
from specrl.telemetry.recorder import Recorder
from tests.test_build_warm_start import taught_in

folder = Path(sys.argv[1])
config = taught_in(folder)
print(build_warm_start(config, prepare_model(config.model), Recorder([ConsoleSink(folder)])))
"""


def built(folder: Path) -> list[str]:
    """What a process that asks for the model prints."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "500"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_model_is_built_once_and_knows_more_than_its_base(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    first = built(tmp_path)
    folder = Path(first[-1])
    record = read_record(folder)
    assert record is not None
    assert (record.examples, record.steps) == (120, 30)
    # Random weights say nothing of 128 tokens: log 128 = 4.85 nats.
    assert record.before.entropy > 4.0
    assert record.after.entropy < record.before.entropy - 1.0
    assert record.nll < 2.5
    assert any("nats/token" in line for line in first)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert json.loads((folder / RECORD_FILE).read_text())["steps"] == 30
    assert (folder / "tokenizer_config.json").exists()
    assert not list(tmp_path.glob("*.work")) + list(tmp_path.glob(".*.work"))
    again, config = FakeTelemetry(), taught_in(tmp_path)
    assert build_warm_start(config, prepare_model(config.model), again) == folder
    assert len(again.notes) == 1
    assert not again.events


def test_what_the_run_would_refuse_is_refused_before_the_warm_start(
    base: Path, tmp_path: Path
) -> None:
    def check() -> None:
        raise UserError("drafter.vocab_size=9 is too much")

    config = load(["debug=tiny", "tracking=none", f"model.cache_dir={tmp_path}"])
    config.model = replace(config.model, name="taught", warm_start=warm())
    with pytest.raises(UserError, match=r"drafter\.vocab_size=9"):
        build_warm_start(config, base, FakeTelemetry(), check)
    assert not list(tmp_path.glob(".*.work"))
