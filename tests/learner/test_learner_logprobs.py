"""Log-probs of the learner against Hugging Face on the same tokens."""

import numpy as np
import pytest
import torch
import transformers
from learner_processes import (
    build_toy,
    hf_logprobs,
    learner_config,
    random_rollouts,
    running_learner,
)

from specrl.config.compose import load
from specrl.models.prepare import prepare_model

pytestmark = pytest.mark.slow


def largest_difference(model, rollouts, logprobs, temperature):
    with torch.no_grad():
        return max(
            np.abs(
                lp.policy - hf_logprobs(model, r.prompt.token_ids, r.token_ids, temperature).numpy()
            ).max()
            for r, lp in zip(rollouts, logprobs, strict=True)
        )


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("qwen3", False)])
def test_fp32_logprobs_equal_hugging_face_packed_and_unpacked(tmp_path, kind, tied):
    model = build_toy(tmp_path, kind, tie_word_embeddings=tied)
    rollouts = random_rollouts()
    packed = learner_config(tokens_per_microbatch=60, logits_chunk_tokens=7)
    unpacked = learner_config(tokens_per_microbatch=1)
    for config in (packed, unpacked):
        with running_learner(tmp_path, config, temperature=0.7) as learner:
            logprobs = learner.logprobs(rollouts)
        assert [len(lp.policy) for lp in logprobs] == [len(r.token_ids) for r in rollouts]
        assert largest_difference(model, rollouts, logprobs, 0.7) < 1e-4


def test_the_real_model_agrees_within_bf16_rounding():
    folder = prepare_model(load(["model=smollm2_135m"]).model)
    rollouts = random_rollouts(4, 2, vocab=49152, max_response=40)
    with running_learner(folder, learner_config(precision="bf16")) as learner:
        logprobs = learner.logprobs(rollouts)
    exact, rounded = (
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16)
    )
    ours, theirs = [], []
    with torch.no_grad():
        for rollout, lp in zip(rollouts, logprobs, strict=True):
            tokens = rollout.prompt.token_ids, rollout.token_ids
            truth = hf_logprobs(exact, *tokens)
            ours.append((torch.from_numpy(lp.policy) - truth).abs())
            theirs.append((hf_logprobs(rounded, *tokens) - truth).abs())
    assert torch.cat(ours).mean() < 1.3 * torch.cat(theirs).mean()
