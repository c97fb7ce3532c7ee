"""What a word of the command line is about."""

import pytest

from specrl.config.overrides import bare, key_of


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("drafter=eagle3", "drafter"),
        ("drafter.k=3,5", "drafter.k"),
        ("+rollout.engine_args.a=b=c", "rollout.engine_args.a"),
        ("++seed=1", "seed"),
        ("~experiment", "experiment"),
        ("hydra/launcher=specrl_slurm", "hydra/launcher"),
        ("", ""),
    ],
)
def test_its_key_is_read_without_hydras_signs(word, key):
    assert key_of(word) == key


def test_a_value_keeps_its_signs():
    assert bare("++task.instruction=+~x") == "task.instruction=+~x"
