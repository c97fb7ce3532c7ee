"""Each drafter says what vLLM should draft with."""

import json
from pathlib import Path

import pytest

from specrl.config.drafter import DraftModelConfig, NgramConfig, NoDrafterConfig
from specrl.drafter import DraftModelDrafter, NgramDrafter, NoDrafter
from specrl.errors import UserError
from specrl.rollout.exactness import check_exact


def model_folder(folder: Path, config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_no_drafter_speculates_nothing_and_counts_as_k_0() -> None:
    drafter = NoDrafter(NoDrafterConfig(k=5))
    assert drafter.speculative_config() is None
    assert (drafter.name, drafter.k) == ("none", 0)


def test_ngram_passes_its_lookup_window_and_k() -> None:
    drafter = NgramDrafter(NgramConfig(k=4, lookup_min=2, lookup_max=5))
    assert drafter.speculative_config() == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }
    assert (drafter.name, drafter.k) == ("ngram", 4)


@pytest.mark.parametrize(
    ("sampling", "verification"),
    [("probabilistic", "standard"), ("greedy", "standard"), ("probabilistic", "block")],
)
def test_draft_model_names_its_folder_how_it_samples_and_how_it_is_verified(
    tmp_path: Path, sampling: str, verification: str
) -> None:
    policy = model_folder(tmp_path / "policy", {"vocab_size": 8})
    draft = model_folder(tmp_path / "draft", {"vocab_size": 8})
    config = DraftModelConfig(model="some/draft", k=2, sampling=sampling, verification=verification)
    drafter = DraftModelDrafter(config, policy, draft)
    assert drafter.speculative_config() == {
        "method": "draft_model",
        "model": str(draft),
        "num_speculative_tokens": 2,
        "draft_sample_method": sampling,
        "rejection_sample_method": verification,
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vocab_size": 9}, r"vocabulary of 9 tokens.*has 8"),
        ({"hidden_size": 9}, "no integer vocab_size"),
    ],
)
def test_a_draft_with_another_vocabulary_is_refused(
    tmp_path: Path, config: dict[str, int], message: str
) -> None:
    policy = model_folder(tmp_path / "policy", {"vocab_size": 8})
    draft = model_folder(tmp_path / "draft", config)
    with pytest.raises(UserError, match=message):
        DraftModelDrafter(DraftModelConfig(model="d"), policy, draft)


def test_a_draft_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    policy = model_folder(tmp_path / "policy", {"vocab_size": 8})
    with pytest.raises(UserError, match=r"drafter\.model=.*has no config\.json"):
        DraftModelDrafter(DraftModelConfig(model="d"), policy, tmp_path / "nothing")


def test_every_drafter_is_on_the_list_of_exact_modes(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "policy", {"vocab_size": 8})
    for drafter in (
        NoDrafter(NoDrafterConfig()),
        NgramDrafter(NgramConfig()),
        DraftModelDrafter(DraftModelConfig(model="d"), folder, folder),
    ):
        check_exact(drafter.speculative_config())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"method": "medusa"}, "medusa"),
        ({"rejection_sample_method": "synthetic"}, "synthetic"),
        ({"use_heterogeneous_vocab": True}, "use_heterogeneous_vocab"),
    ],
)
def test_a_mode_not_known_to_be_exact_is_refused_by_name(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(UserError, match=f"{named}.*not known to be exact"):
        check_exact({"method": "ngram", "num_speculative_tokens": 3, **change})
