"""Policy updates of the learner against Hugging Face with torch's AdamW."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_processes import (
    algorithm_config,
    build_toy,
    hf_logprobs,
    learner_config,
    random_rollouts,
    running_learner,
    train_samples,
)
from safetensors.torch import load_file

from specrl.errors import ActorDied, NonFiniteError
from specrl.learner.mapping import HuggingFaceFolder
from specrl.types import TrainSample

pytestmark = pytest.mark.slow
ALGORITHM = {"kl_coef": 0.1, "truncated_is": 1.2}


def hf_grpo_loss(model, samples, aggregation):
    """The same objective written out again, sample by sample."""
    total = sum(len(s.response_ids) for s in samples)
    loss = 0.0
    for s in samples:
        logprobs = hf_logprobs(model, s.prompt_ids, s.response_ids, 0.7)
        behaviour, rollout = torch.tensor(s.policy_logprobs), torch.tensor(s.rollout_logprobs)
        ratio = (logprobs - behaviour).exp()
        objective = torch.min(ratio * s.advantage, ratio.clamp(0.8, 1.28) * s.advantage)
        gap = torch.tensor(s.reference_logprobs) - logprobs
        terms = 0.1 * (gap.exp() - gap - 1) - (behaviour - rollout).exp().clamp(max=1.2) * objective
        loss += terms.sum() / (total if aggregation == "token" else len(samples) * len(terms))
    return loss


def hf_training(model, batches, aggregation):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step, samples in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 3)
        optimizer.zero_grad()
        loss = hf_grpo_loss(model, samples, aggregation)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same_weights(folder, model):
    exported = HuggingFaceFolder(folder)
    for name, parameter in model.named_parameters():
        difference = (exported[name] - parameter.detach()).abs().max().item()
        assert difference < 1e-4, (name, difference)


@pytest.mark.parametrize(
    ("kind", "layout", "aggregation"),
    [
        ("llama", {}, "token"),
        ("qwen3", {"recompute": True}, "sequence"),
        ("llama", {"data_parallel": 2}, "sequence"),
        ("qwen3", {"tensor_parallel": 2}, "token"),
    ],
)
def test_five_updates_equal_hugging_face_and_adamw(tmp_path, kind, layout, aggregation):
    changes = {"vocab_size": 99} if layout.get("tensor_parallel") else {"tie_word_embeddings": True}
    model = build_toy(tmp_path, kind, **changes)
    config = learner_config(
        weight_decay=0.1, clip_grad=0.5, warmup_steps=3, tokens_per_microbatch=40, **layout
    )
    algorithm = algorithm_config(aggregation=aggregation, **ALGORITHM)
    losses, batches = [], []
    with running_learner(tmp_path, config, algorithm, temperature=0.7) as learner:
        rollouts = random_rollouts(vocab=99)
        # Log-probs of the start: later updates see ratios away from 1, and clip.
        samples = train_samples(rollouts, learner.logprobs(rollouts), rollout_noise=0.3)
        for _ in range(5):
            batches.append(samples)
            losses.append(learner.step(samples)["loss"])
        export = tmp_path / "export"
        export.mkdir()
        learner.export_weights(export, 1)
    assert losses == pytest.approx(hf_training(model, batches, aggregation), abs=1e-4)
    assert_same_weights(export, model)


def test_an_update_with_its_own_log_probs_equals_one_with_recomputed_ones(tmp_path):
    build_toy(tmp_path, tie_word_embeddings=True)
    rollouts = random_rollouts()
    results = []
    for recompute in (True, False):
        export = tmp_path / f"export-{recompute}"
        export.mkdir()
        config = learner_config(recompute_logprobs=recompute, tokens_per_microbatch=40)
        algorithm = algorithm_config(kl_coef=0.1, truncated_is=1.2)
        with running_learner(tmp_path, config, algorithm) as learner:
            logprobs = learner.logprobs(rollouts)
            assert all((item.policy is None) != recompute for item in logprobs)
            noise = np.random.default_rng(0)
            samples = [
                TrainSample(
                    rollout.prompt.token_ids,
                    rollout.token_ids,
                    float(noise.normal()),
                    noise.normal(-4.0, 0.3, len(rollout.token_ids)).astype(np.float32),
                    item.policy,
                    item.reference,
                )
                for rollout, item in zip(rollouts, logprobs, strict=True)
            ]
            metrics = learner.step(samples)
            learner.export_weights(export, 1)
        results.append((metrics, load_file(export / "policy-v1.safetensors")))
    (recomputed, expected), (fused, got) = results
    assert fused == pytest.approx(recomputed, abs=1e-5)
    assert fused["grad_norm"] > 0
    for name in expected:
        assert (got[name] - expected[name]).abs().max() < 1e-6, name


def test_metrics_say_what_happened(tmp_path):
    build_toy(tmp_path)
    algorithm = algorithm_config(kl_coef=0.1, minibatches=2)
    with running_learner(tmp_path, learner_config(), algorithm) as learner:
        rollouts = random_rollouts()
        samples = train_samples(rollouts, learner.logprobs(rollouts), rollout_noise=0.1)
        metrics = learner.step(samples)
    differences = np.concatenate([abs(s.rollout_logprobs - s.policy_logprobs) for s in samples])
    assert metrics["tokens"] == len(differences)
    assert metrics["logprob_diff_mean"] == pytest.approx(differences.mean(), rel=1e-4)
    assert metrics["logprob_diff_max"] == pytest.approx(differences.max(), rel=1e-4)
    assert 0 < metrics["entropy"] < np.log(100)
    assert metrics["importance_mean"] == 1.0
    assert metrics["kl"] > 0
    assert metrics["lr"] == 1e-3
    assert metrics["grad_norm"] > 0


def test_only_tokens_that_feed_a_response_get_gradient(tmp_path):
    build_toy(tmp_path)
    zeros = np.zeros(2, np.float32)
    sample = TrainSample((1, 2, 3), (4, 5), 1.0, zeros, zeros - 4.0)
    with running_learner(tmp_path) as learner:
        learner.step([sample, sample])
        gradients = learner.actors[0].submit("gradients").result()
    seen = gradients["embedding.word_embeddings.weight"].abs().sum(1).nonzero().flatten().tolist()
    # Token 5 ends the response, predicts nothing, and is nobody's input.
    assert seen == [1, 2, 3, 4]
    # A softmax row's gradient sums to 0; prompt targets 2 and 3 are not pulled up.
    output = gradients["output_layer.weight"]
    assert output.sum(0).abs().max() < 1e-5
    pulled = (output * -1).sum(1)
    assert set(pulled.abs().topk(2).indices.tolist()) == {4, 5}


def test_zero_advantages_leave_the_weights_as_they_are(tmp_path):
    build_toy(tmp_path)
    rollouts = random_rollouts()
    with running_learner(tmp_path) as learner:
        actor = learner.actors[0]
        before = actor.submit("weights").result()
        samples = train_samples(rollouts, learner.logprobs(rollouts))
        zero = [
            TrainSample(s.prompt_ids, s.response_ids, 0.0, *[s.policy_logprobs] * 2)
            for s in samples
        ]
        assert learner.step(zero)["grad_norm"] == 0.0
        after = actor.submit("weights").result()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_nan_on_one_rank_stops_the_step_and_keeps_the_weights(tmp_path):
    build_toy(tmp_path)
    rollouts = random_rollouts()
    with running_learner(tmp_path, learner_config(data_parallel=2)) as learner:
        before = learner.actors[0].submit("weights").result()
        logprobs = learner.logprobs(rollouts)
        good = train_samples(rollouts, logprobs)
        first = good[0]
        bad = TrainSample(
            first.prompt_ids, first.response_ids, float("nan"), *[first.policy_logprobs] * 2
        )
        with pytest.raises(NonFiniteError, match="loss is nan"):
            learner.step([bad, *good[1:]])
        after = learner.actors[0].submit("weights").result()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert np.isfinite(learner.step(good)["loss"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_the_step_although_the_loss_is(tmp_path, value):
    build_toy(tmp_path)
    rollouts = random_rollouts()
    with running_learner(tmp_path, learner_config(data_parallel=2, clip_grad=0.5)) as learner:

        def state():
            ranks = [actor.submit("optimizer_state").result() for actor in learner.actors]
            return ranks, [actor.submit("weights").result() for actor in learner.actors]

        samples = train_samples(rollouts, learner.logprobs(rollouts))
        learner.step(samples)
        before = state()
        learner.actors[1].submit("poison_next_gradient", value).result()
        with pytest.raises(NonFiniteError, match=rf"gradient norm is {value} at optimizer step 1"):
            learner.step(samples)
        torch.testing.assert_close(state(), before, rtol=0, atol=0)
        assert learner.step(samples)["grad_norm"] > 0
        with pytest.raises(AssertionError):
            torch.testing.assert_close(state(), before, rtol=0, atol=0)


def test_a_rank_without_samples_and_an_empty_response_take_part(tmp_path):
    build_toy(tmp_path)
    full, empty = random_rollouts(1, 2)
    empty = replace(empty, token_ids=(), rollout_logprobs=np.zeros(0, np.float32))
    metrics = []
    for copies in (1, 2):
        with running_learner(tmp_path, learner_config(data_parallel=copies)) as learner:
            logprobs = learner.logprobs([full, empty])
            assert len(logprobs[1].policy) == 0
            metrics.append(learner.step(train_samples([full, empty], logprobs)))
    assert metrics[0]["tokens"] == len(full.token_ids)
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-4)


def test_a_rank_that_dies_is_reported(tmp_path):
    build_toy(tmp_path)
    with running_learner(tmp_path, learner_config(data_parallel=2)) as learner:
        learner.actors[1].submit("die")
        with pytest.raises(ActorDied, match="learner-1"):
            learner.logprobs(random_rollouts())
