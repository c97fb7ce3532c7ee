"""What the learner refuses before anything heavy starts."""

import json

import pytest

from specrl.config.learner import LearnerConfig
from specrl.errors import UserError
from specrl.learner.layout import check_layout, rank_placements, read_shape

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}


def model_folder(path, **changes):
    (path / "config.json").write_text(json.dumps({**SMOLLM2, **changes}))
    return path


def learner(**changes):
    return LearnerConfig(name="megatron", **changes)


def test_the_shape_is_read_from_the_config(tmp_path):
    shape = read_shape(model_folder(tmp_path))
    assert (shape.head_dim, shape.rope_theta, shape.tied, shape.qk_norm) == (64, 1e5, True, False)


def test_rope_theta_is_found_in_either_place(tmp_path):
    folder = model_folder(
        tmp_path, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5}
    )
    assert read_shape(folder).rope_theta == 5e5


@pytest.mark.parametrize(
    ("ways", "words"), [(2, "9 attention heads"), (9, "3 key/value heads"), (5, "9 attention")]
)
def test_tensor_parallelism_must_divide_the_heads(tmp_path, ways, words):
    folder = model_folder(tmp_path)
    check_layout(folder, learner(tensor_parallel=3))
    with pytest.raises(UserError, match=f"learner.tensor_parallel={ways} .*{words}"):
        check_layout(folder, learner(tensor_parallel=ways))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "expert parallelism"),
        ({"num_hidden_layers": None}, "num_hidden_layers=None in its config"),
        ({"vocab_size": "many"}, "vocab_size=many in its config"),
        ({"num_attention_heads": 0}, "num_attention_heads=0 in its config"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"attention_bias": True}, "attention_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"hidden_act": "gelu"}, "gelu"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        check_layout(model_folder(tmp_path, **changes), learner())


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.json does not exist"):
        check_layout(tmp_path, learner())


def test_cores_are_split_over_ranks():
    placements = rank_placements(learner(data_parallel=2, cores=[3, 4, 5, 6]), num_gpus=0)
    assert [p.cores for p in placements] == [(3, 4), (5, 6)]
    assert placements[0].env["OMP_NUM_THREADS"] == "2"
