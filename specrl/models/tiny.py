"""Tiny models with random weights and a character-level tokenizer, for tests and debugging."""

import json
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specrl.config.model import ModelConfig
from specrl.errors import UserError
from specrl.models.architecture import ARCHITECTURES
from specrl.models.cache import cache_root, cached_folder, folder_name

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
SPECIALS = (PAD, BOS, EOS, UNK)
# Digits first, so that a vocabulary of 16 can still write sums.
CHARACTERS = string.digits + " +-=*/().,:?\n" + string.ascii_letters + "!\"#$%&';<>@[\\]^_`{|}~"
MIN_VOCAB = 8
MAX_VOCAB = 10**6
DTYPES = ("float32", "bfloat16")
# Part of the cache key: raise it when the code below writes something else.
RECIPE = 1
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'][0] }}: "
    "{{ message['content'] }}\n{% endfor %}{% if add_generation_prompt %}a: {% endif %}"
)
DEFAULTS: Mapping[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


def tiny_folder(config: ModelConfig, note: Callable[[str], None] = lambda _: None) -> Path:
    """Folder of the model that `config.tiny` describes, random weights drawn from its seed.

    `config.tiny` holds Hugging Face config values over `DEFAULTS`, plus `seed` (0) and `dtype`
    (float32). Special tokens are ids 0 <pad>, 1 <bos>, 2 <eos>, 3 <unk>.
    """
    values = tiny_values(config)
    place = tiny_place(config)
    return cached_folder(place.parent, place.name, lambda folder: _make(values, folder), note)


def tiny_place(config: ModelConfig) -> Path:
    """Where `tiny_folder` is, or will be."""
    text = json.dumps(tiny_values(config), sort_keys=True, default=str)
    return cache_root(config) / folder_name(config.name, f"{RECIPE} {text}")


def tiny_values(config: ModelConfig) -> Mapping[str, Any]:
    """What `config.tiny` says, checked, over the defaults. Raises `UserError`."""
    values = {**DEFAULTS, "seed": 0, "dtype": "float32", **(config.tiny or {})}
    _check(values)
    return values


def _check(values: Mapping[str, Any]) -> None:
    kind, vocab, dtype = values["model_type"], values["vocab_size"], values["dtype"]
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UserError(f"model.tiny.model_type={kind} is not supported; use one of {known}")
    if not isinstance(vocab, int) or not MIN_VOCAB <= vocab <= MAX_VOCAB:
        raise UserError(
            f"model.tiny.vocab_size={vocab} must be a number from {MIN_VOCAB} to {MAX_VOCAB}"
        )
    if dtype not in DTYPES:
        raise UserError(f"model.tiny.dtype={dtype} is not known; use {' or '.join(DTYPES)}")


def _make(values: Mapping[str, Any], folder: Path) -> None:
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {k: v for k, v in values.items() if k not in {"seed", "dtype", "model_type"}}
    tokens = {
        "pad_token_id": SPECIALS.index(PAD),
        "bos_token_id": SPECIALS.index(BOS),
        "eos_token_id": SPECIALS.index(EOS),
    }
    try:
        config = AutoConfig.for_model(values["model_type"], **{**tokens, **shape})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(values["seed"])
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError, StrictDataclassError) as error:
        raise UserError(
            f"model.tiny does not describe a model: {' '.join(str(error).split())}"
        ) from None
    model.to(getattr(torch, values["dtype"])).save_pretrained(folder)
    _tokenizer(values["vocab_size"]).save_pretrained(folder)


def _tokenizer(vocab_size: int) -> Any:
    """One token a character; ids beyond the known characters are `<x123>`, so every id decodes."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = [*SPECIALS, *CHARACTERS][:vocab_size]
    names = known + [f"<x{i}>" for i in range(len(known), vocab_size)]
    vocab = {name: i for i, name in enumerate(names)}
    core = Tokenizer(models.WordLevel(vocab, unk_token=UNK))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, vocab[BOS])]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, bos_token=BOS, eos_token=EOS, unk_token=UNK
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
