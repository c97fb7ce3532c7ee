"""The real EAGLE-3 trainer inside learner processes."""

import numpy as np
import pytest
import torch
from learner_processes import build_toy, learner_config, random_rollouts, running_learner
from linear_draft import draft_weights, samples_of

from specrl.config.drafter import DraftTrainingConfig, Eagle3Config
from specrl.drafter.eagle3_folder import check_folder, fresh_folder, load_draft
from specrl.types import DraftSetup

pytestmark = pytest.mark.slow
AUX = (0, 1, 3)
TARGETS = range(0, 100, 2)


def eagle3(tmp_path, **training):
    """The policy's folder and the setup of a fresh draft for it; one update a pass."""
    policy = tmp_path / "policy"
    build_toy(policy, num_hidden_layers=4)
    return policy, eagle3_setup(policy, tmp_path / "fresh", **training)


def eagle3_setup(policy, draft, **training):
    """Of a fresh draft, made in the folder `draft`."""
    draft.mkdir()
    fresh_folder(policy, TARGETS, AUX, seed=0, dtype="float32", folder=draft)
    training = {"precision": "fp32", "tokens_per_update": 10_000, **training}
    config = Eagle3Config(training=DraftTrainingConfig(**training))
    target = "specrl.drafter.training:Eagle3Trainer"
    return DraftSetup(target, draft, config, every=1, learning_rate=1e-3, passes=2)


def trained(tmp_path, policy, setup, name, **layout):
    export = tmp_path / name
    export.mkdir()
    config = learner_config(tokens_per_microbatch=25, **layout)
    with running_learner(policy, config, draft=setup) as learner:
        metrics = []
        for seed in range(2):
            learner.step(samples_of(random_rollouts(seed=seed)))
            metrics.append(learner.step_draft())
        learner.capture(random_rollouts(seed=5))
        metrics.append(learner.fit_draft(1e-3))
        replayed = learner.replay_draft(random_rollouts(seed=6), 2)
        return metrics, draft_weights(learner.export_weights(export, 2)), replayed


def test_several_ranks_train_the_draft_as_one_does(tmp_path):
    policy, setup = eagle3(tmp_path)
    one, expected, kept = trained(tmp_path, policy, setup, "one")
    for layout in ("data_parallel", "tensor_parallel"):
        several, got, others = trained(tmp_path, policy, setup, layout, **{layout: 2})
        for ours, theirs in zip(several, one, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3)
        assert got.keys() == expected.keys()
        for name in expected:
            assert (got[name] - expected[name]).abs().max() < 1e-4, name
        for ours, theirs in zip(others, kept, strict=True):
            assert np.abs(ours - theirs).max() < 1e-3


def test_it_learns_resumes_and_exports_what_the_engine_loads(tmp_path):
    policy, setup = eagle3(tmp_path, tokens_per_update=30)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    rollouts = random_rollouts(prompts=4, samples=4)
    with running_learner(policy, draft=setup) as learner:
        learner.step(samples_of(rollouts))
        first = learner.step_draft()
        learner.capture(rollouts)
        for _ in range(20):
            learner.fit_draft(3e-3)
        learner.save(checkpoint)
        learner.step(samples_of(rollouts))
        expected = learner.step_draft()
    with running_learner(policy, draft=setup) as learner:
        learner.load(checkpoint)
        learner.step(samples_of(rollouts))
        assert learner.step_draft() == expected
    assert expected["loss"] < first["loss"]
    assert expected["expected_accepted_pos_0"] > first["expected_accepted_pos_0"]
    assert expected["updates"] > 2
    check_folder(checkpoint / "draft", policy, AUX)
    _, target_ids_D = load_draft(checkpoint / "draft")
    assert torch.equal(target_ids_D, torch.tensor(list(TARGETS)))
