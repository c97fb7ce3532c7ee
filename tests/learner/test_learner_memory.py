"""The learner's memory at a real vocabulary."""

from dataclasses import replace

import numpy as np
import pytest
from learner_processes import learner_config, random_rollouts, running_learner, train_samples

from specrl.config.compose import load
from specrl.models.prepare import prepare_model

pytestmark = pytest.mark.slow
VOCABULARY = 49152


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
    assert peak < 5.0  # 2.25 GiB more with all logits at once, at the least


def _with_response(rollout, ids):
    return replace(rollout, token_ids=ids, rollout_logprobs=np.zeros(len(ids), np.float32))
