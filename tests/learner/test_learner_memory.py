"""The learner's memory at a real vocabulary."""

from dataclasses import replace

import numpy as np
import pytest
from learner_processes import (
    build_toy,
    learner_config,
    random_rollouts,
    running_learner,
    train_samples,
)

from specrl.config.compose import load
from specrl.models.prepare import prepare_model

pytestmark = pytest.mark.slow
VOCABULARY = 49152
LOGITS_GIB = 64 * 192 * VOCABULARY * 4 / 2**30  # 2.25: what a naive head would hold, at least once


def test_the_logits_of_a_batch_are_never_in_memory(tmp_path):
    build_toy(tmp_path, vocab_size=VOCABULARY, tie_word_embeddings=True)
    config = learner_config(precision="bf16", tokens_per_microbatch=2048, logits_chunk_tokens=256)
    rollouts = random_rollouts(8, 8, VOCABULARY, max_response=1)
    ids = tuple(int(t) for t in np.arange(192) * 37 % VOCABULARY)
    few = [_with_response(rollout, ids[:8]) for rollout in rollouts[:8]]
    many = [_with_response(rollout, ids) for rollout in rollouts]
    with running_learner(tmp_path, config) as learner:
        actor = learner.actors[0]
        learner.step(train_samples(few, learner.logprobs(few)))
        small = actor.submit("peak_rss_gib").result()
        learner.step(train_samples(many, learner.logprobs(many)))
        large = actor.submit("peak_rss_gib").result()
    assert large - small < LOGITS_GIB / 4
    assert large < 5.0


def test_the_real_model_trains_on_64_rollouts_of_192_tokens_in_five_gib():
    folder = prepare_model(load(["model=smollm2_135m"]).model)
    ids = tuple(int(t) for t in np.arange(192) * 37 % VOCABULARY)
    few = random_rollouts(8, 8, VOCABULARY, max_response=1)
    rollouts = [_with_response(rollout, ids) for rollout in few]
    with running_learner(folder, learner_config(precision="bf16")) as learner:
        # Microbatch follows microbatch: after three, more of them need no more memory.
        logprobs = learner.logprobs(rollouts[:16]) * 4
        metrics = learner.step(train_samples(rollouts, logprobs))
        peak = learner.actors[0].submit("peak_rss_gib").result()
    assert metrics["tokens"] == 64 * 192
    assert metrics["grad_norm"] > 0
    assert peak < 5.0


def _with_response(rollout, ids):
    return replace(rollout, token_ids=ids, rollout_logprobs=np.zeros(len(ids), np.float32))
