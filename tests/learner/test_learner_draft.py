"""A learned draft in the learner: what it is fed, that the policy does not notice, its state."""

from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from learner_processes import (
    algorithm_config,
    build_toy,
    hf_logprobs,
    learner_config,
    random_rollouts,
    running_learner,
)
from linear_draft import draft_weights, samples_of
from safetensors.torch import load_file
from test_learner_eagle3 import eagle3_setup

from specrl.errors import UserError
from specrl.learner.tap import token_quota
from specrl.types import DraftSetup

pytestmark = pytest.mark.slow
LAYERS = 4
AUX = (0, 1, 3)
TARGETS = [5, 7, 11, 42, 60, 99]  # over both halves of the vocabulary


def setup(**changes):
    config = {"aux_layers": AUX, "target_ids": TARGETS, "hidden": 64, **changes.pop("config", {})}
    values = {"every": 1, "learning_rate": 1e-2, **changes}
    return DraftSetup("linear_draft:LinearDraft", Path("unused"), config, **values)


def folder_in(tmp_path, name):
    (tmp_path / name).mkdir()
    return tmp_path / name


def fed(learner, rank=0):
    return learner.actors[rank].submit("captured").result()


def nucleus_sum(logits, top_p):
    """Log-sum of the fewest likeliest logits that hold top_p, and which these are."""
    mass, order = logits.softmax(-1).sort(descending=True)
    kept = order[: int((mass.cumsum(-1) < top_p).sum()) + 1]
    return logits[kept].logsumexp(-1), set(kept.tolist())


def assert_hugging_face_agrees(model, batches, rollouts, temperature, top_p):
    """Every rollout was seen once, with the states that Hugging Face computes for it alone."""
    expected = {(*r.prompt.token_ids, *r.token_ids): len(r.prompt.token_ids) for r in rollouts}
    for batch in batches:
        assert torch.equal(batch.head_DH, model.lm_head.weight[TARGETS])
        samples = zip(batch.rows, batch.prompt_lengths, batch.slices, strict=True)
        for rows, prompt, own in samples:
            ids = batch.token_ids_T[rows]
            assert expected.pop(tuple(ids.tolist())) == prompt
            out = model.model(ids[None], output_hidden_states=True)
            for number, layer in enumerate(AUX):
                theirs = out.hidden_states[layer][0]
                assert (batch.aux_TAH[rows, number] - theirs).abs().max() < 1e-4
            embeds = model.model.embed_tokens(ids)
            assert torch.equal(batch.embeds_TH[rows], embeds)
            final = out.last_hidden_state[0, prompt - 1 : -1]
            assert (batch.final_RH[own] - final).abs().max() < 1e-4
            for row, logits in enumerate(model.lm_head(final) / temperature):
                log_sum, kept = nucleus_sum(logits, top_p)
                assert abs(batch.nucleus.log_sum_C[own][row] - log_sum) < 1e-4
                above = (logits >= batch.nucleus.cutoff_C[own][row]).nonzero()[:, 0].tolist()
                assert set(above) == kept
        assert (batch.num_tokens, batch.temperature) == (len(batch.final_RH), temperature)
    assert not expected


@pytest.mark.parametrize(
    ("kind", "layout", "top_p"),
    [
        ("llama", {}, 1.0),
        ("qwen3", {"recompute": True}, 0.6),
        ("llama", {"tensor_parallel": 2}, 0.6),
    ],
)
def test_the_draft_is_fed_what_hugging_face_computes(tmp_path, kind, layout, top_p):
    model = build_toy(tmp_path, kind, num_hidden_layers=LAYERS)
    rollouts = random_rollouts()
    config = learner_config(tokens_per_microbatch=25, **layout)
    with (
        running_learner(tmp_path, config, temperature=0.7, top_p=top_p, draft=setup()) as learner,
        torch.no_grad(),
    ):
        learner.capture(rollouts[:4])
        assert learner.capture(rollouts[4:]) == sum(len(r.token_ids) for r in rollouts)
        outside_rl = fed(learner)
        learner.step(samples_of(rollouts))
        in_rl = fed(learner)
        assert len(in_rl) > 1
        for batches in (outside_rl, in_rl):
            assert_hugging_face_agrees(model, batches, rollouts, 0.7, top_p)
        if "tensor_parallel" in layout:
            for ours, theirs in zip(in_rl, fed(learner, rank=1), strict=True):
                assert torch.equal(ours.aux_TAH, theirs.aux_TAH)
                assert torch.equal(ours.head_DH, theirs.head_DH)
                assert torch.equal(ours.nucleus.log_sum_C, theirs.nucleus.log_sum_C)
                assert torch.equal(ours.nucleus.cutoff_C, theirs.nucleus.cutoff_C)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_policy_is_the_same_by_bits_with_and_without_a_draft(tmp_path, precision):
    build_toy(tmp_path, num_hidden_layers=LAYERS, tie_word_embeddings=True)
    config = learner_config(precision=precision, clip_grad=0.05, tokens_per_microbatch=25)
    real = eagle3_setup(tmp_path, tmp_path / "fresh", clip_grad=0.01)
    results = []
    for draft in (None, setup(passes=2), setup(every=0), real):
        checkpoint = folder_in(tmp_path, f"checkpoint-{len(results)}")
        with running_learner(
            tmp_path, config, algorithm_config(minibatches=2), top_p=0.9, draft=draft
        ) as learner:
            actor = learner.actors[0]
            actor.submit("count_forwards").result()
            metrics, forwards = [], []
            for seed in range(3):
                metrics.append(learner.step(samples_of(random_rollouts(seed=seed))))
                trained = learner.step_draft()
                assert ("loss" in trained) == (draft is not None and draft.every == 1)
                assert draft is not real or trained["grad_norm"] > 0.01
                forwards.append(actor.submit("forwards_so_far").result())
            learner.save(checkpoint)
        # Master weights, Adam moments, update count and RNG.
        state = (checkpoint / "learner-tp0-of-1.safetensors").read_bytes()
        results.append((metrics, forwards, xxhash.xxh3_64_hexdigest(state)))
    assert all(result == results[0] for result in results)
    metrics, forwards, _ = results[0]
    assert all(step["grad_norm"] > 0.05 for step in metrics)
    assert 2 <= forwards[0] < forwards[1] < forwards[2]  # a microbatch or more for each minibatch


def test_several_ranks_train_the_draft_as_one_does(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    results = []
    for number, ranks in enumerate(({}, {"data_parallel": 2}, {"tensor_parallel": 2})):
        export = folder_in(tmp_path, f"export-{number}")
        config = learner_config(tokens_per_microbatch=25, **ranks)
        with running_learner(tmp_path, config, draft=setup(passes=2)) as learner:
            metrics = []
            for seed in range(2):
                learner.step(samples_of(random_rollouts(seed=seed)))
                metrics.append(learner.step_draft())
            learner.capture(random_rollouts(seed=5))
            metrics.append(learner.fit_draft(1e-2))
            replayed = learner.replay_draft(random_rollouts(seed=6), 2)
            results.append((metrics, draft_weights(learner.export_weights(export, 2)), replayed))
    (one, expected, log_sums), *layouts = results
    for several, got, others in layouts:
        for ours, theirs in zip(several, one, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4)
        assert (got["fc.weight"] - expected["fc.weight"]).abs().max() < 1e-4
        for ours, theirs in zip(others, log_sums, strict=True):
            assert np.abs(ours - theirs).max() < 1e-4


def test_training_lowers_the_loss_and_metrics_are_means(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    rollouts = random_rollouts()
    tokens = sum(len(r.token_ids) for r in rollouts)
    with running_learner(tmp_path, draft=setup()) as learner:
        learner.capture(rollouts)
        first = learner.fit_draft(1e-2)
        last = [learner.fit_draft(1e-2) for _ in range(20)][-1]
    assert last["loss"] < first["loss"] < 10
    assert 0 < first["out_of_vocabulary_mass"] < 1
    assert 0 < first["expected_accepted_pos_0"] < last["expected_accepted_pos_0"] < 1
    assert (first["tokens"], first["updates"], first["lr"]) == (tokens, 1, 1e-2)
    assert first["grad_norm"] > 0


def test_during_rl_a_draft_learns_by_the_loss_of_its_setup(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    losses = []
    for name in (None, "twice"):
        with running_learner(tmp_path, draft=setup(loss=name)) as learner:
            learner.step(samples_of(random_rollouts()))
            losses.append(learner.step_draft()["loss"])
    assert losses[1] == pytest.approx(2 * losses[0])


def test_a_resumed_draft_goes_on_where_it_was(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    checkpoint = folder_in(tmp_path, "checkpoint")
    alone = folder_in(tmp_path, "alone")
    draft = setup(every=2)

    def go_on(learner, name):
        metrics = []
        for seed in (3, 4):
            learner.step(samples_of(random_rollouts(seed=seed)))
            metrics.append(learner.step_draft())
        weights = draft_weights(learner.export_weights(folder_in(tmp_path, name), 5))
        return metrics, weights["fc.weight"]

    with running_learner(tmp_path, draft=draft) as learner:
        for seed in (0, 1, 2):
            learner.step(samples_of(random_rollouts(seed=seed)))
            learner.step_draft()
        learner.save(checkpoint)
        learner.save_draft(alone)
        expected = go_on(learner, "whole")
    with running_learner(tmp_path, draft=draft) as learner:
        learner.load(checkpoint)
        resumed = go_on(learner, "resumed")
        learner.load_draft(alone)
        back = draft_weights(learner.export_weights(folder_in(tmp_path, "back"), 6))
    assert resumed[0] == expected[0]
    assert [m["staleness_steps"] for m in expected[0]] == [0.0, 1.0]
    assert torch.equal(resumed[1], expected[1])
    exported = load_file(checkpoint / "draft" / "model.safetensors")
    assert torch.equal(back["fc.weight"], exported["fc.weight"])
    assert not torch.equal(back["fc.weight"], expected[1])


def test_the_draft_trains_every_n_steps_and_offline_never(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    seen = {}
    for every in (2, 0):
        with running_learner(tmp_path, draft=setup(every=every)) as learner:
            metrics = []
            for seed in range(4):
                learner.step(samples_of(random_rollouts(seed=seed)))
                metrics.append(learner.step_draft())
                assert fed(learner) == []
        seen[every] = [(m["staleness_steps"], "loss" in m) for m in metrics]
    assert seen[2] == [(1.0, False), (0.0, True), (1.0, False), (0.0, True)]
    assert seen[0] == [(1.0, False), (2.0, False), (3.0, False), (4.0, False)]


def test_a_token_budget_bounds_what_the_draft_is_fed(tmp_path):
    model = build_toy(tmp_path, num_hidden_layers=LAYERS)
    rollouts = random_rollouts()
    config, algorithm = learner_config(tokens_per_microbatch=25), algorithm_config(minibatches=2)
    with running_learner(tmp_path, config, algorithm, draft=setup(tokens=20)) as learner:
        learner.step(samples_of(rollouts))
        batches = fed(learner)
        assert learner.step_draft()["tokens"] == 20
        learner.step(samples_of(rollouts))
        assert sum(batch.num_tokens for batch in fed(learner)) == 20
    whole = {(*r.prompt.token_ids, *r.token_ids) for r in rollouts}
    cut = []
    for batch in batches:
        used = torch.cat(batch.rows).unique()
        assert len(used) == len(batch.token_ids_T) == len(batch.aux_TAH) == len(batch.embeds_TH)
        for rows, prompt, own in zip(batch.rows, batch.prompt_lengths, batch.slices, strict=True):
            ids = tuple(batch.token_ids_T[rows].tolist())
            assert len(ids) == prompt + own.stop - own.start
            assert any(sample[: len(ids)] == ids for sample in whole)
            cut += [ids] if ids not in whole else []
            with torch.no_grad():
                theirs = model.model(torch.tensor([ids]), output_hidden_states=True)
            first = batches[0] is batch  # of the first minibatch: later ones see other weights
            difference = (batch.aux_TAH[rows, 2] - theirs.hidden_states[3][0]).abs().max()
            assert not first or difference < 1e-4
    assert len(cut) <= 1


def test_a_quota_draws_whole_samples_at_random_up_to_the_budget():
    lengths = [5, 1, 9, 3, 0]
    assert token_quota(lengths, None, 0) == lengths
    assert token_quota(lengths, 100, 0) == lengths
    drawn = [token_quota(lengths, 8, seed) for seed in range(20)]
    assert {sum(quota) for quota in drawn} == {8}
    assert len({tuple(quota) for quota in drawn}) > 3
    for quota in drawn:
        assert sum(0 < q < length for q, length in zip(quota, lengths, strict=True)) <= 1


def test_parts_of_the_cache_cover_it_and_replay_leaves_it(tmp_path):
    model = build_toy(tmp_path, num_hidden_layers=LAYERS)
    rollouts = random_rollouts()
    tokens = sum(len(r.token_ids) for r in rollouts)
    config = learner_config(tokens_per_microbatch=20)
    with running_learner(tmp_path, config, temperature=0.7, draft=setup()) as learner:
        assert learner.capture(rollouts) == tokens
        parts = [learner.fit_draft(1e-3, part, 3)["tokens"] for part in range(3)]
        assert sum(parts) == tokens
        assert min(parts) > 0
        replayed = learner.replay_draft(rollouts, 3)
        assert learner.fit_draft(1e-3)["tokens"] == tokens
        learner.forget_captured()
        assert learner.capture(rollouts[:1]) == len(rollouts[0].token_ids)
    for rollout, rows in zip(rollouts, replayed, strict=True):
        ids = torch.tensor([[*rollout.prompt.token_ids, *rollout.token_ids]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(rollout.prompt.token_ids) - 1 : -1]
        expected = (logits / 0.7).logsumexp(-1).numpy()
        assert rows.shape == (len(expected), 3)
        assert np.abs(rows - expected[:, None]).max() < 1e-4


def test_a_snapshot_has_the_draft_with_checksums_in_the_serving_dtype(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    export = folder_in(tmp_path, "export")
    with running_learner(tmp_path, serving="bfloat16", draft=setup()) as learner:
        snapshot = learner.export_weights(export, 3)
    assert {path.name for path in export.iterdir()} == {
        "policy-v3.safetensors",
        "draft-v3.safetensors",
    }
    written = draft_weights(snapshot)
    assert {name: str(tensor.dtype) for name, tensor in written.items()} == {
        "fc.weight": "torch.bfloat16",
        "d2t": "torch.int64",
    }
    assert (written["d2t"] + torch.arange(len(TARGETS))).tolist() == TARGETS
    for name, tensor in written.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        assert snapshot.draft.checksums[name] == xxhash.xxh3_64_hexdigest(raw)


def test_what_cannot_work_is_refused_by_name(tmp_path):
    build_toy(tmp_path, num_hidden_layers=LAYERS)
    checkpoint = folder_in(tmp_path, "checkpoint")
    with running_learner(tmp_path) as learner:
        learner.save(checkpoint)
        assert learner.step_draft() == {}
        with pytest.raises(UserError, match="drafter=eagle3"):
            learner.capture(random_rollouts())
    with (
        running_learner(tmp_path, draft=setup()) as learner,
        pytest.raises(UserError, match="holds no trained draft"),
    ):
        learner.load(checkpoint)
    for config, words in (
        ({"aux_layers": (0, 1, 4)}, "layer 4, the policy has 0..3"),
        ({"target_ids": [1, 100]}, "token 100, the policy has 100"),
    ):
        with (
            pytest.raises(UserError, match=words),
            running_learner(tmp_path, draft=setup(config=config)),
        ):
            pass


def test_log_probs_come_with_the_entropy_of_each_distribution(tmp_path):
    model = build_toy(tmp_path)
    rollouts = random_rollouts()
    with running_learner(tmp_path, temperature=0.7) as learner:
        logprobs = learner.logprobs(rollouts)
    for rollout, ours in zip(rollouts, logprobs, strict=True):
        ids = torch.tensor([[*rollout.prompt.token_ids, *rollout.token_ids]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(rollout.prompt.token_ids) - 1 : -1] / 0.7
            expected = torch.distributions.Categorical(logits=logits).entropy().numpy()
            policy = hf_logprobs(model, rollout.prompt.token_ids, rollout.token_ids, 0.7).numpy()
        assert np.abs(ours.entropy - expected).max() < 1e-4
        assert np.abs(ours.policy - policy).max() < 1e-4
