"""Save and load: a fresh process goes on with the same losses."""

import numpy as np
import pytest
from learner_processes import (
    algorithm_config,
    build_toy,
    learner_config,
    random_rollouts,
    running_learner,
    train_samples,
)

from specrl.errors import UserError
from specrl.types import TrainSample

pytestmark = pytest.mark.slow


def batch_samples(seed):
    """Fixed behaviour log-probs: what a step gives depends on the weights only."""
    samples = train_samples(
        random_rollouts(seed=seed), [_Constant(r) for r in random_rollouts(seed=seed)], seed
    )
    assert all(isinstance(sample, TrainSample) for sample in samples)
    return samples


class _Constant:
    def __init__(self, rollout):
        self.policy = np.full(len(rollout.token_ids), -4.5, np.float32)
        self.reference = None


@pytest.mark.parametrize(
    ("precision", "layout", "tolerance"),
    [
        ("fp32", {}, 1e-5),
        ("fp32", {"data_parallel": 2}, 1e-5),
        ("bf16", {"tensor_parallel": 2}, 1e-5),
    ],
)
def test_a_fresh_process_goes_on_with_the_same_losses(tmp_path, precision, layout, tolerance):
    build_toy(tmp_path)
    config = learner_config(precision=precision, warmup_steps=4, **layout)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with running_learner(tmp_path, config) as learner:
        for seed in (1, 2):
            learner.step(batch_samples(seed))
        learner.save(checkpoint)
        expected = [learner.step(batch_samples(seed)) for seed in (3, 4, 5)]
    with running_learner(tmp_path, config) as learner:
        learner.load(checkpoint)
        resumed = [learner.step(batch_samples(seed)) for seed in (3, 4, 5)]
    for ours, theirs in zip(resumed, expected, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=tolerance)
        assert ours["lr"] == theirs["lr"]
    assert len({metrics["loss"] for metrics in expected}) == 3


def test_a_checkpoint_from_before_the_first_update_loads(tmp_path):
    build_toy(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with running_learner(tmp_path) as learner:
        learner.save(checkpoint)
        expected = learner.step(batch_samples(1))["loss"]
        learner.load(checkpoint)
        assert learner.step(batch_samples(1))["loss"] == expected


def test_another_precision_or_layout_is_refused_by_name(tmp_path):
    build_toy(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with running_learner(tmp_path) as learner:
        learner.save(checkpoint)
    with (
        running_learner(tmp_path, learner_config(precision="bf16")) as learner,
        pytest.raises(UserError, match="precision=fp32"),
    ):
        learner.load(checkpoint)
    with (
        running_learner(tmp_path, learner_config(tensor_parallel=2)) as learner,
        pytest.raises(UserError, match="tensor_parallel"),
    ):
        learner.load(checkpoint)


def test_the_reference_stays_the_initial_policy(tmp_path):
    build_toy(tmp_path)
    rollouts = random_rollouts()
    with running_learner(tmp_path, algorithm=algorithm_config(kl_coef=0.1)) as learner:
        before = learner.logprobs(rollouts)
        samples = train_samples(rollouts, before)
        learner.step(samples)
        after = learner.logprobs(rollouts)
    for first, second in zip(before, after, strict=True):
        assert np.array_equal(first.policy, first.reference)
        assert np.array_equal(first.reference, second.reference)
        assert not np.array_equal(first.policy, second.policy)
