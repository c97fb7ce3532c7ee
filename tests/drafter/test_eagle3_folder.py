"""A draft folder: what a fresh one holds, what reads it, and every fault named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle3_folders import (
    HIDDEN,
    LAYERS,
    TARGET_IDS,
    VOCAB,
    change_config,
    change_tensors,
    drop_facts,
    save_policy,
)
from safetensors.torch import load_file
from torch import Tensor

from specrl.drafter.eagle3 import Eagle3
from specrl.drafter.eagle3_folder import (
    adopt_folder,
    check_folder,
    fresh_folder,
    load_draft,
    read_facts,
    read_folder,
    write_folder,
)
from specrl.drafter.eagle3_vocabulary import vocabulary_digest
from specrl.errors import UserError


@pytest.fixture
def draft(policy: Path) -> Path:
    folder = policy.parent / "draft"
    fresh_folder(policy, TARGET_IDS, LAYERS, seed=0, dtype="float32", folder=folder)
    return folder


def test_a_fresh_draft_has_the_policys_head_rows_and_final_norm(policy: Path, draft: Path) -> None:
    theirs = load_file(policy / "model.safetensors")
    shape, tensors = read_folder(draft)
    rows = theirs["model.embed_tokens.weight"][list(TARGET_IDS)]
    assert torch.equal(tensors["lm_head.weight"], rows)
    assert torch.equal(tensors["norm.weight"], theirs["model.norm.weight"])
    assert (shape.vocab, shape.draft_vocab, shape.aux_layers) == (VOCAB, 8, LAYERS)
    assert (shape.rope.theta, shape.rms_eps, shape.positions) == (5000.0, 1e-5, 128)
    check_folder(draft, policy, LAYERS)


def test_an_untied_policys_head_is_taken_before_its_embeddings(policy: Path) -> None:
    head = torch.randn(VOCAB, HIDDEN)
    change_tensors(policy, lambda tensors: tensors.update({"lm_head.weight": head}))
    fresh_folder(policy, TARGET_IDS, LAYERS, 0, "float32", policy.parent / "draft")
    _, tensors = read_folder(policy.parent / "draft")
    assert torch.equal(tensors["lm_head.weight"], head[list(TARGET_IDS)])


def test_the_vocabulary_map_of_a_folder_gives_the_chosen_tokens(draft: Path) -> None:
    _, target_ids = load_draft(draft)
    stored = load_file(draft / "model.safetensors")
    assert target_ids.tolist() == list(TARGET_IDS)
    assert stored["d2t"].tolist() == [token - i for i, token in enumerate(TARGET_IDS)]
    assert stored["t2d"].nonzero().flatten().tolist() == list(TARGET_IDS)
    assert read_facts(draft)["vocabulary"] == vocabulary_digest(target_ids)


def test_a_draft_over_the_whole_vocabulary_has_no_map(policy: Path) -> None:
    folder = policy.parent / "draft"
    fresh_folder(policy, None, LAYERS, 0, "bfloat16", folder)
    draft, target_ids = load_draft(folder)
    theirs = load_file(policy / "model.safetensors")["model.embed_tokens.weight"].bfloat16()
    assert target_ids.tolist() == list(range(VOCAB))
    assert not {"d2t", "t2d"} & set(load_file(folder / "model.safetensors"))
    assert torch.equal(draft.lm_head.weight, theirs)
    check_folder(folder, policy, LAYERS)


def test_a_fresh_draft_begins_as_the_policys_last_layer(policy: Path, draft: Path) -> None:
    theirs = load_file(policy / "model.safetensors")
    own = load_file(draft / "model.safetensors")
    assert torch.equal(own["fc.weight"][:, -HIDDEN:], torch.eye(HIDDEN))
    for name in ("self_attn.o_proj", "mlp.down_proj", "post_attention_layernorm"):
        assert torch.equal(own[f"midlayer.{name}.weight"], theirs[f"model.layers.5.{name}.weight"])
    query = own["midlayer.self_attn.q_proj.weight"]
    assert torch.equal(query[:, HIDDEN:], theirs["model.layers.5.self_attn.q_proj.weight"])


def test_equal_seeds_give_equal_drafts_and_others_do_not(policy: Path) -> None:
    first = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fresh_folder(policy, TARGET_IDS, LAYERS, seed, "float32", policy.parent / name)
        first.append(load_file(policy.parent / name / "model.safetensors")["fc.weight"])
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


@pytest.mark.parametrize(
    ("scaling", "kind", "factor"),
    [
        ({"rope_type": "linear", "factor": 4.0}, "linear", 4.0),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}, "llama3", 8.0),
        ({"rope_type": "yarn", "factor": 4.0}, "default", 1.0),
    ],
)  # fmt: skip
def test_a_fresh_draft_rotates_as_its_policy_or_plainly(
    tmp_path: Path, scaling: dict[str, Any], kind: str, factor: float
) -> None:
    policy = save_policy(tmp_path / "policy", rope_scaling=scaling)
    fresh_folder(policy, TARGET_IDS, LAYERS, 0, "float32", tmp_path / "draft")
    shape, _ = read_folder(tmp_path / "draft")
    assert (shape.rope.kind, shape.rope.factor, shape.rope.theta) == (kind, factor, 5000.0)


def test_the_layers_stand_where_each_engine_reads_them(draft: Path) -> None:
    config = json.loads((draft / "config.json").read_text())
    # SGLang adds one to the ids of its own block.
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]


def test_a_written_draft_is_read_back_with_its_facts(policy: Path, draft: Path) -> None:
    shape, tensors = read_folder(draft)
    folder = policy.parent / "copy"
    for _ in range(2):
        write_folder(folder, shape, tensors, {**read_facts(draft), "updates": 3})
    again, read = read_folder(folder)
    assert again == shape
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    assert read_facts(folder)["updates"] == 3
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    check_folder(folder, policy, LAYERS)


def test_parameters_are_named_as_in_the_checkpoint(draft: Path) -> None:
    shape, tensors = read_folder(draft)
    sizes = {name: tuple(p.shape) for name, p in Eagle3(shape).named_parameters()}
    assert sizes == shape.tensor_shapes()
    assert sizes.keys() == tensors.keys() - {"d2t"}


def as_speculators(folder: Path) -> None:
    """Nested config, layers in a list, embeddings of its own."""
    config = json.loads((folder / "config.json").read_text())
    outer = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config.pop("draft_vocab_size"),
        "eagle_aux_hidden_state_layer_ids": config.pop("eagle_aux_hidden_state_layer_ids"),
        "norm_before_residual": False,
        "transformer_layer_config": config,
    }
    for name in ("specrl", "architectures", "norm_before_residual", "eagle_config"):
        del config[name]
    (folder / "config.json").write_text(json.dumps(outer))
    change_tensors(folder, rename_layers)


def rename_layers(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.startswith("midlayer.")]:
        tensors[name.replace("midlayer.", "layers.0.")] = tensors.pop(name)


def as_sglang(folder: Path) -> None:
    """Layers in SGLang's own block only."""
    drop_facts(folder)
    change_config(folder, eagle_aux_hidden_state_layer_ids=None)


def as_first_authors(folder: Path) -> None:
    """A pickled file, the policy's architecture name, no layers."""
    drop_facts(folder)
    change_config(folder, eagle_aux_hidden_state_layer_ids=None, eagle_config=None,
                  architectures=["LlamaForCausalLM"])  # fmt: skip
    tensors = load_file(folder / "model.safetensors")
    torch.save(dict(tensors), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("dialect", [as_speculators, as_sglang, as_first_authors])
def test_what_others_write_becomes_ours_with_the_same_tensors(
    tmp_path: Path, dialect: Callable[[Path], None]
) -> None:
    policy = save_policy(tmp_path / "policy", num_hidden_layers=9)
    layers = (2, 4, 6)
    fresh_folder(policy, TARGET_IDS, layers, 0, "float32", tmp_path / "theirs")
    shape, tensors = read_folder(tmp_path / "theirs")
    dialect(tmp_path / "theirs")
    adopt_folder(tmp_path / "theirs", policy, layers, tmp_path / "ours")
    again, read = read_folder(tmp_path / "ours")
    assert again == shape
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    check_folder(tmp_path / "ours", policy, layers)


def test_a_draft_with_the_policys_embeddings_loads_and_leaves_them_out(
    policy: Path, draft: Path
) -> None:
    embedding = load_file(policy / "model.safetensors")["model.embed_tokens.weight"]
    change_tensors(draft, lambda t: t.update({"embed_tokens.weight": embedding * 1.01}))
    adopt_folder(draft, policy, LAYERS, policy.parent / "ours")
    assert "embed_tokens.weight" not in load_file(policy.parent / "ours" / "model.safetensors")


Fault = Callable[[Path], object]


def tensors_fault(change: Callable[[dict[str, Tensor]], object]) -> Fault:
    return lambda folder: change_tensors(folder, change)


def config_fault(**changes: Any) -> Fault:
    return lambda folder: change_config(folder, **changes)


def swap_map(tensors: dict[str, Tensor]) -> None:
    """A consistent map, of other tokens."""
    tensors["d2t"] += 1
    tensors["t2d"] = tensors["t2d"].roll(1)


FAULTS: dict[str, tuple[Fault, str]] = {
    "eagle head": (
        tensors_fault(lambda t: t.update({"fc.weight": torch.ones(HIDDEN, 2 * HIDDEN)})),
        r"another kind, an EAGLE-1 or -2 head \(fc\.weight is \(16, 32\)\)",
    ),
    "eagle architecture": (
        config_fault(architectures=["EagleLlamaForCausalLM"]),
        "another kind.*EagleLlamaForCausalLM",
    ),
    "mtp head": (
        tensors_fault(lambda t: t.update({"mtp_layers.0.token_layernorm.weight": torch.ones(2)})),
        "another kind, an MTP head",
    ),
    "another model's hidden size": (
        lambda folder: save_and_draft(folder, hidden_size=32),
        "for another model: its hidden size is 32, that of the policy .* is 16",
    ),
    "another model's vocabulary": (
        lambda folder: save_and_draft(folder, vocab_size=64),
        "for another model: its vocabulary is 64, that of the policy .* is 40",
    ),
    "another model of the same sizes": (
        lambda folder: save_and_draft(folder, num_hidden_layers=5),
        "for another model: it was made for the policy [0-9a-f]{16}",
    ),
    "another model's embeddings": (
        tensors_fault(lambda t: t.update({"embed_tokens.weight": torch.randn(VOCAB, HIDDEN)})),
        "for another model: its token embeddings are 1.* away",
    ),
    "wrong layers in its config": (
        config_fault(eagle_aux_hidden_state_layer_ids=[1, 2, 4]),
        r"made for layers \[1, 2, 3\].*asks the engine for \[1, 2, 4\]",
    ),
    "swapped map": (tensors_fault(swap_map), "vocabulary map is wrong: d2t is not the one"),
    "map of one token twice": (
        tensors_fault(lambda t: t["d2t"].__setitem__(1, -1)),
        "vocabulary map is wrong: .*one token from several",
    ),
    "map beyond the vocabulary": (
        tensors_fault(lambda t: t["d2t"].__setitem__(7, 33)),
        r"vocabulary map is wrong: d2t leads to tokens 0\.\.40",
    ),
    "maps that disagree": (
        tensors_fault(lambda t: t["t2d"].__setitem__(2, False)),
        "t2d and d2t disagree, first in token 2",
    ),
    "no map": (tensors_fault(lambda t: t.pop("d2t")), "lacks the tensor d2t"),
    "zeroed": (
        tensors_fault(lambda t: t["midlayer.self_attn.o_proj.weight"].zero_()),
        r"midlayer\.self_attn\.o_proj\.weight is zero throughout",
    ),
    "NaN": (
        tensors_fault(lambda t: t["fc.weight"][3].fill_(torch.nan)),
        r"fc\.weight has NaN or inf",
    ),
    "missing tensor": (
        tensors_fault(lambda t: t.pop("midlayer.mlp.up_proj.weight")),
        r"lacks the tensor midlayer\.mlp\.up_proj\.weight",
    ),
    "query on the feature alone": (
        tensors_fault(
            lambda t: t.update({"midlayer.self_attn.q_proj.weight": torch.ones(HIDDEN, HIDDEN)})
        ),
        r"q_proj\.weight is \(16, 16\), its config\.json says \(16, 32\)",
    ),
    "damaged file": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}"),
        r"model\.safetensors is damaged",
    ),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        r"has no model\.safetensors",
    ),
    "no config": (lambda folder: (folder / "config.json").unlink(), r"has no config\.json"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "cannot be read"),
    "half a config": (
        lambda folder: (folder / "config.json").write_text(
            '{"architectures": ["LlamaForCausalLMEagle3"]}'
        ),
        "lacks or misstates 'num_attention_heads'",
    ),
    "two layers": (config_fault(num_hidden_layers=2), "not supported.*num_hidden_layers=2"),
    "a norm before fc": (config_fault(norm_before_fc=True), "not supported.*norm_before_fc"),
    "rotary embedding": (
        config_fault(rope_parameters={"rope_type": "yarn", "rope_theta": 1.0}),
        "rope_type=yarn is not supported",
    ),
    "no rotary base": (
        config_fault(rope_parameters={"rope_theta": 0}),
        "rope_theta=0, which must be above 0",
    ),
    "no heads": (
        config_fault(num_attention_heads=0, head_dim=None),
        "num_attention_heads=0, which must be a whole number above 0",
    ),
    "no list of architectures": (config_fault(architectures=5), "lacks or misstates"),
    "no layers in its facts": (
        config_fault(specrl={"aux_layers": None}),
        r"made for layers None.*asks the engine for \[1, 2, 3\]",
    ),
    "endless config": (
        lambda folder: (folder / "config.json").write_text("[" * 100_000),
        "cannot be read",
    ),
    "quantised": (
        tensors_fault(lambda t: t.update({"fc.weight": t["fc.weight"].to(torch.int8)})),
        r"fc\.weight is torch\.int8, as in a quantised draft",
    ),
    "a number for a matrix": (
        tensors_fault(lambda t: t.update({"fc.weight": torch.tensor(1.0)})),
        r"not EAGLE-3 \(fc\.weight is \(\)\)",
    ),
    "embeddings of another width": (
        tensors_fault(lambda t: t.update({"embed_tokens.weight": torch.ones(VOCAB, 3)})),
        r"token embeddings are \(40, 3\)",
    ),
    "damaged older file": (lambda folder: only_older(folder, b"x"), "pytorch_model.bin is damaged"),
    "empty older file": (lambda folder: only_older(folder, b""), r"is damaged \(EOFError\)"),
}


def only_older(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)


def save_and_draft(folder: Path, **changes: Any) -> None:
    """The draft of another policy in the place of this one."""
    other = save_policy(folder.parent / "other", **changes)
    fresh_folder(other, TARGET_IDS, LAYERS, 0, "float32", folder)


@pytest.mark.parametrize(("fault", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_named(policy: Path, draft: Path, fault: Fault, message: str) -> None:
    fault(draft)
    with pytest.raises(UserError, match=message) as raised:
        check_folder(draft, policy, LAYERS)
    assert "\n" not in str(raised.value)


def test_a_draft_of_other_layers_than_the_run_is_refused(policy: Path, draft: Path) -> None:
    with pytest.raises(UserError, match=r"sees layers \[1, 2, 3\].*gives it \[0, 3, 5\]"):
        check_folder(draft, policy, (0, 3, 5))


def test_a_foreign_drafts_layers_count_too(policy: Path, draft: Path) -> None:
    drop_facts(draft)
    change_config(draft, eagle_aux_hidden_state_layer_ids=[1, 2, 4])
    with pytest.raises(UserError, match=r"sees layers \[1, 2, 4\].*gives it \[1, 2, 3\]"):
        check_folder(draft, policy, LAYERS)
