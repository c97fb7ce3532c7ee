"""In bf16 the engine is as close to the exact log-probs as Hugging Face's own bf16 forward."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollout_engines import EAGLE3, start_toy
from rollout_toys import constrained_logprobs
from test_engine_logprobs import prompts_of

from specrl.algo.acceptance import total
from specrl.types import Rollout, Sampling

pytestmark = pytest.mark.slow

SAMPLES, TOKENS = 64, 24
LENGTHS = (3, 8, 20, 33)


def forward_logprobs(model: Any, rollouts: Sequence[Rollout]) -> np.ndarray:
    """[rollouts, TOKENS] of one Hugging Face forward pass per prompt."""
    groups = []
    for start in range(0, len(rollouts), SAMPLES):
        batch = rollouts[start : start + SAMPLES]
        ids_BT = torch.tensor([r.prompt.token_ids + r.token_ids for r in batch])
        logprobs_BTV = constrained_logprobs(model, ids_BT, temperature=1.0, top_p=1.0)
        chosen_BT = logprobs_BTV[:, :-1].gather(-1, ids_BT[:, 1:, None])[..., 0]
        groups.append(chosen_BT[:, -TOKENS:].numpy())
    return np.concatenate(groups)


@pytest.mark.parametrize("speculation", [None, EAGLE3], ids=["none", "eagle3"])
def test_bf16_logprobs_agree_within_the_rounding_of_hugging_face(
    tmp_path: Path, speculation: dict[str, Any] | None
) -> None:
    started = start_toy(tmp_path, speculation, dtype="bfloat16")
    sampling = Sampling(max_tokens=TOKENS, ignore_eos=True, seed=3)
    try:
        rollouts = started.engine.generate(prompts_of(LENGTHS), SAMPLES, sampling)
    finally:
        started.actor.kill()
    exact = forward_logprobs(copy.deepcopy(started.model).float(), rollouts)
    rounded = forward_logprobs(started.model, rollouts)
    ours = np.stack([rollout.rollout_logprobs for rollout in rollouts])
    rounding = np.abs(rounded - exact).mean()
    assert rounding > 1e-3  # bf16, not fp32
    assert np.abs(ours - exact).mean() < 1.3 * rounding
    if speculation is not None:
        counts = total(rollout.spec for rollout in rollouts if rollout.spec is not None)
        assert sum(counts.num_accepted_tokens) > len(rollouts)
