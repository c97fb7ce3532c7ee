"""A published head, config.json and weights alone: what tells that it is none of this policy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle3_folders import (
    TARGET_IDS,
    change_config,
    change_tensors,
    drop_facts,
)

from specrl.drafter.eagle3_folder import check_folder, fresh_folder
from specrl.errors import UserError

SEEN = (0, 3, 5)  # what an engine takes of 6 layers where nobody names any


@pytest.fixture
def head(policy: Path) -> Path:
    """A head of the policy without our facts, nor a word of the layers that it sees."""
    folder = policy.parent / "head"
    fresh_folder(policy, TARGET_IDS, SEEN, seed=0, dtype="float32", folder=folder)
    drop_facts(folder)
    change_config(folder, eagle_aux_hidden_state_layer_ids=None, eagle_config=None)
    return folder


def config_fault(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: change_config(folder, **changes)


def verified_by(kind: str) -> dict[str, Any]:
    """As speculators writes the target."""
    return {"speculators_config": {"verifier": {"architectures": [kind]}}}


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a deeper model's layers": (
        config_fault(eagle_aux_hidden_state_layer_ids=[2, 16, 29]),
        "for another model: it sees layer 29, the last layer of the policy .* is 5;",
    ),
    "another target's width": (
        config_fault(target_hidden_size=4096),
        "for another model: its target's hidden size is 4096, that of the policy .* is 16;",
    ),
    "another target's kind": (
        config_fault(**verified_by("Qwen3ForCausalLM")),
        "for another model: its target is a Qwen3ForCausalLM, the policy .* is LlamaForCausalLM;",
    ),
    "layers that are no numbers": (
        config_fault(eagle_aux_hidden_state_layer_ids=["a"]),
        "lacks or misstates .*'a'",
    ),
    "heads in uneven groups": (
        config_fault(num_key_value_heads=3),
        "num_attention_heads=4, no multiple of 3 key heads",
    ),
    "a number for the mask of tokens": (
        lambda folder: change_tensors(folder, lambda t: t.update(t2d=torch.tensor(1))),
        "t2d and d2t disagree, first in its length",
    ),
    "a NaN in the map": (
        lambda folder: change_tensors(folder, lambda t: t.update(d2t=t["d2t"] * torch.nan)),
        "the vocabulary map is wrong",
    ),
}


@pytest.mark.parametrize(("fault", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_what_a_head_itself_shows_is_named(
    policy: Path, head: Path, fault: Callable[[Path], object], message: str
) -> None:
    fault(head)
    with pytest.raises(UserError, match=message) as raised:
        check_folder(head, policy, SEEN)
    assert "\n" not in str(raised.value)


def test_a_head_that_names_the_policy_as_its_target_passes(policy: Path, head: Path) -> None:
    kind = verified_by("LlamaForCausalLM")
    change_config(head, target_hidden_size=16, eagle_aux_hidden_state_layer_ids=SEEN, **kind)
    check_folder(head, policy, SEEN)
