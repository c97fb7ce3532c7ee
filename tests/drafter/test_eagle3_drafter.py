"""What EAGLE-3 tells the engine and the learner."""

from pathlib import Path
from typing import Any

import pytest

from specrl.config.adaptation import AdaptationConfig
from specrl.config.drafter import AUTO_MAX_K, Eagle3Config, NgramConfig, NoDrafterConfig
from specrl.drafter import Eagle3Drafter, NgramDrafter, NoDrafter
from specrl.rollout.exactness import check_exact

FOLDER = Path("some/draft")
ONLINE = AdaptationConfig(
    name="online", every=2, tokens=500, passes=3, learning_rate=1e-4, loss="tv"
)


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ({}, {}),
        ({"sampling": "greedy"}, {"draft_sample_method": "greedy"}),
        ({"verification": "block"}, {"rejection_sample_method": "block"}),
        ({"k": "auto"}, {"num_speculative_tokens": AUTO_MAX_K}),
    ],
)
def test_the_engine_drafts_as_the_config_says(
    values: dict[str, Any], changes: dict[str, Any]
) -> None:
    usual = {"method": "eagle3", "model": str(FOLDER), "num_speculative_tokens": 3,
             "draft_sample_method": "probabilistic"}  # fmt: skip
    entries = Eagle3Drafter(Eagle3Config(**values), FOLDER).speculative_config()
    assert entries == usual | changes
    check_exact(entries)


def test_an_online_draft_is_trained_as_the_adaptation_says() -> None:
    config = Eagle3Config()
    setup = Eagle3Drafter(config, FOLDER, ONLINE).draft_setup()
    assert (setup.every, setup.tokens, setup.passes, setup.learning_rate) == (2, 500, 3, 1e-4)
    assert (setup.folder, setup.config, setup.loss) == (FOLDER, config, "tv")


@pytest.mark.parametrize("adaptation", [None, AdaptationConfig(name="offline", every=2)])
def test_a_draft_that_stays_is_held_but_never_trained(adaptation: AdaptationConfig | None) -> None:
    setup = Eagle3Drafter(Eagle3Config(), FOLDER, adaptation).draft_setup()
    assert (setup.folder, setup.every, setup.learning_rate) == (FOLDER, 0, 0.0)


def test_the_learner_can_import_the_trainer_by_its_name() -> None:
    from importlib import import_module

    module, _, name = Eagle3Drafter(Eagle3Config(), FOLDER).draft_setup().target.partition(":")
    assert isinstance(getattr(import_module(module), name), type)


def test_other_drafters_have_nothing_to_train() -> None:
    for drafter in (NoDrafter(NoDrafterConfig()), NgramDrafter(NgramConfig(k="auto"))):
        assert drafter.draft_setup() is None
    assert NgramDrafter(NgramConfig(k="auto")).k == AUTO_MAX_K
