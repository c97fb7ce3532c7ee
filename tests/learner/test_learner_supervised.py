"""A policy update with advantage 1 on its own log-probs is a step of supervised training."""

import pytest
import torch
from learner_processes import algorithm_config, build_toy, learner_config, running_learner
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from specrl.warm_start import Example

pytestmark = pytest.mark.slow


def test_four_steps_equal_cross_entropy_with_adamw_and_a_falling_rate(tmp_path):
    model = build_toy(tmp_path, tie_word_embeddings=True)
    torch.manual_seed(1)
    ids = [torch.randint(0, 100, (9 + 4 * n,)).tolist() for n in range(6)]
    examples = [Example(tuple(text[:4]), tuple(text[4:])) for text in ids]
    config = learner_config(
        recompute_logprobs=False, tokens_per_microbatch=40, warmup_steps=1, decay_steps=2
    )
    with running_learner(tmp_path, config, algorithm_config()) as learner:
        found = [learner.step([e.sample() for e in examples]) for _ in range(4)]
        export = tmp_path / "export"
        export.mkdir()
        tuned = load_file(learner.export_weights(export, 1).path)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0
    )
    for step, rate in enumerate([1e-3, 1e-3, 0.55e-3, 0.1e-3]):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        rows = [model(torch.tensor([text])).logits[0, 3:-1] for text in ids]
        targets = torch.tensor([token for text in ids for token in text[4:]])
        loss = cross_entropy(torch.cat(rows), targets)
        loss.backward()
        optimizer.step()
        assert found[step]["lr"] == pytest.approx(rate)
        assert found[step]["logprob_diff_mean"] == pytest.approx(loss.item(), abs=1e-4)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(tuned[name], parameter.detach(), atol=1e-4, rtol=0)
