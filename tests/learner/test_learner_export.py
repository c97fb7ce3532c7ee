"""Exported weights are the loaded ones, bit for bit, under Hugging Face names."""

import json

import pytest
import torch
import xxhash
from learner_processes import (
    build_toy,
    hf_logprobs,
    learner_config,
    random_rollouts,
    running_learner,
)
from safetensors.torch import load_file

from specrl.learner.layout import read_shape
from specrl.learner.mapping import HuggingFaceFolder, Shard, export_weights, load_weights

pytestmark = pytest.mark.slow


def same_bytes(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


@pytest.mark.parametrize(
    ("kind", "precision", "layout"),
    [
        ("llama", "bf16", {}),
        ("qwen3", "fp32", {"tensor_parallel": 2}),
        ("llama", "bf16", {"tensor_parallel": 2}),
    ],
)
def test_a_round_trip_is_bit_exact(tmp_path, kind, precision, layout):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    serving = str(dtype).removeprefix("torch.")
    # 101 rows do not divide by two: the vocabulary is padded inside and cut on the way out.
    model = build_toy(tmp_path, kind, dtype, vocab_size=101)
    export = tmp_path / "export"
    export.mkdir()
    config = learner_config(precision=precision, **layout)
    with running_learner(tmp_path, config, serving=serving) as learner:
        snapshot = learner.export_weights(export, 5)
    assert snapshot.version == 5
    assert [path.name for path in export.iterdir()] == ["policy-v5.safetensors"]
    written = load_file(snapshot.path)
    expected = dict(model.state_dict())
    assert written.keys() == expected.keys() == snapshot.checksums.keys()
    for name, tensor in written.items():
        assert same_bytes(tensor, expected[name]), name
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        assert snapshot.checksums[name] == xxhash.xxh3_64_hexdigest(raw)


def test_tied_models_export_no_second_vocabulary_matrix(tmp_path):
    build_toy(tmp_path, tie_word_embeddings=True)
    with running_learner(tmp_path) as learner:
        snapshot = learner.export_weights(tmp_path, 0)
    assert "lm_head.weight" not in snapshot.checksums
    assert "model.embed_tokens.weight" in snapshot.checksums


def test_transformer_engine_names_map_to_the_same_tensors(tmp_path):
    build_toy(tmp_path)
    shape = read_shape(tmp_path)
    source = HuggingFaceFolder(tmp_path)
    prefix = "decoder.layers.0."
    names = {
        f"{prefix}self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
        f"{prefix}mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    }
    parameters = {name: torch.empty(shape.hidden) for name in names}
    load_weights(parameters, source, shape, Shard(0, 1))
    for name, tensor in parameters.items():
        assert torch.equal(tensor, source[f"model.layers.0.{names[name]}"])
    exported = [name for name, _ in export_weights(parameters, shape, 1, lambda t, _: t)]
    assert exported == [f"model.layers.0.{name}" for name in names.values()]


def test_bf16_logprobs_are_within_the_rounding_hugging_face_shows(tmp_path):
    model = build_toy(tmp_path, num_hidden_layers=4)
    rollouts = random_rollouts(prompts=6, max_response=40)
    with running_learner(tmp_path, learner_config(precision="bf16")) as learner:
        logprobs = learner.logprobs(rollouts)
    ours, theirs = [], []
    with torch.no_grad():
        exact = [hf_logprobs(model, r.prompt.token_ids, r.token_ids) for r in rollouts]
        rounded = model.to(torch.bfloat16)
        for rollout, lp, reference in zip(rollouts, logprobs, exact, strict=True):
            hf = hf_logprobs(rounded, rollout.prompt.token_ids, rollout.token_ids)
            theirs.append((hf - reference).abs())
            ours.append((torch.from_numpy(lp.policy) - reference).abs())
    ours, theirs = torch.cat(ours), torch.cat(theirs)
    assert ours.mean() < 1.2 * theirs.mean()
    assert ours.max() < 2 * theirs.max()


def test_the_header_is_plain_safetensors(tmp_path):
    build_toy(tmp_path)
    with running_learner(tmp_path, serving="bfloat16") as learner:
        path = learner.export_weights(tmp_path, 1).path
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    assert {entry["dtype"] for entry in header.values()} == {"BF16"}
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(raw) - 8 - size
