"""Acceptance views on rollouts worked by hand, and against a slow count."""

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from specrl.algo.acceptance_views import acceptance_views
from specrl.types import Float32, Prompt, Rollout

PROMPT = Prompt("p", "", (1,), {})


def rollout(steps: list[tuple[int, int]], version: int = 0) -> Rollout:
    length = sum(1 + accepted for _, accepted in steps)
    return Rollout(
        prompt=PROMPT,
        group=0,
        sample=0,
        token_ids=(7,) * length,
        rollout_logprobs=np.zeros(length, np.float32),
        text="",
        finish_reason="stop",
        versions=(version,),
        spec=None,
        latency_s=1.0,
        draft_steps=tuple(steps),
    )


def test_each_bucket_has_its_own_rates_and_denominators() -> None:
    short = rollout([(0, 0), (2, 2)])  # 4 tokens
    long = rollout([(0, 0)] + [(2, 0)] * 9)  # 10 tokens
    metrics = acceptance_views([short, long])
    assert metrics["spec/by_length/0004-0007/acceptance_length"] == 3.0
    assert metrics["spec/by_length/0004-0007/num_drafts"] == 1.0
    assert metrics["spec/by_length/0008-0015/acceptance_length"] == 1.0
    assert metrics["spec/by_length/0008-0015/num_drafts"] == 9.0
    assert metrics["spec/by_length/0008-0015/acceptance_rate_pos_1"] == 0.0
    assert metrics["spec/by_length/0008-0015/drafted_pos_1"] == 9.0
    assert not any("/0001-0001/" in name for name in metrics)


def test_a_step_belongs_to_the_decile_of_its_first_token() -> None:
    metrics = acceptance_views([rollout([(0, 0), (3, 3), (3, 1), (3, 0), (3, 1)])])  # 1+4+2+1+2
    starts = {1: 3, 5: 1, 7: 0, 8: 1}  # token -> accepted, of 10
    for decile in range(10):
        assert metrics.get(f"spec/by_decile/{decile}/acceptance_length") == (
            1.0 + starts[decile] if decile in starts else None
        )


def test_lag_counts_back_from_the_newest_version() -> None:
    metrics = acceptance_views([rollout([(2, 1)], version=7), rollout([(2, 2)] * 3, version=5)])
    assert metrics["spec/by_lag/0/acceptance_length"] == 2.0
    assert metrics["spec/by_lag/2/acceptance_length"] == 3.0
    assert metrics["spec/by_lag/2/num_drafts"] == 3.0
    assert "spec/by_lag/1/num_drafts" not in metrics


def test_entropy_of_the_response_and_of_the_drafted_token_are_told_apart() -> None:
    steps = rollout([(0, 0), (1, 1), (1, 0)])  # drafts begin at tokens 1 and 3
    entropy = np.asarray([0.1, 0.1, 3.5, 0.7], np.float32)  # mean 1.1
    metrics = acceptance_views([steps], [entropy])
    assert metrics["spec/by_entropy/1.00-1.50/num_drafts"] == 2.0
    assert metrics["spec/by_token_entropy/0.00-0.25/acceptance_length"] == 2.0
    assert metrics["spec/by_token_entropy/0.50-1.00/acceptance_length"] == 1.0


def test_unknown_entropies_leave_only_those_views_out() -> None:
    one, two = rollout([(1, 1)]), rollout([(1, 0)] * 2)
    assert not any("entropy" in name for name in acceptance_views([one, two], [None, None]))
    metrics = acceptance_views([one, two], [None, np.full(2, 9.0, np.float32)])
    assert metrics["spec/by_entropy/3.00-up/num_drafts"] == 2.0
    assert metrics["spec/by_lag/0/num_drafts"] == 3.0


@pytest.mark.parametrize("rollouts", [[], [rollout([(0, 0)] * 5)], [rollout([])]])
def test_without_drafts_there_is_nothing_to_view(rollouts: list[Rollout]) -> None:
    assert acceptance_views(rollouts, [None] * len(rollouts)) == {}


def test_ragged_drafts_agree_with_a_slow_count() -> None:
    generator = np.random.default_rng(0)
    rollouts, entropies = [], []
    for _ in range(50):
        drafted = generator.integers(0, 6, generator.integers(1, 40))
        steps = [(int(d), int(generator.integers(0, d + 1))) for d in drafted]
        rollouts.append(rollout(steps, version=int(generator.integers(3))))
        entropies.append(generator.exponential(1.0, len(rollouts[-1].token_ids)).astype("f4"))
    metrics = acceptance_views(rollouts, entropies)
    for (bucket, position), (reached, kept) in slow_counts(rollouts, entropies).items():
        assert metrics[f"spec/by_{bucket}/drafted_pos_{position}"] == reached
        rate = metrics[f"spec/by_{bucket}/acceptance_rate_pos_{position}"]
        assert rate == pytest.approx(kept / reached)
    for view in ("lag", "length", "decile", "entropy", "token_entropy"):
        parts = [
            value
            for name, value in metrics.items()
            if name.startswith(f"spec/by_{view}/") and name.endswith("num_drafts")
        ]
        assert sum(parts) == sum(d > 0 for r in rollouts for d, _ in r.draft_steps)


def slow_counts(
    rollouts: list[Rollout], entropies: list[Float32]
) -> dict[tuple[str, int], tuple[int, int]]:
    counts: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one, entropy in zip(rollouts, entropies, strict=True):
        position = 0
        for drafted, accepted in one.draft_steps:
            decile = f"decile/{int(10 * position / len(one.token_ids))}"
            low = "token_entropy/0.00-0.25"
            buckets = [decile, low] if entropy[position] < 0.25 else [decile]
            for key in product(buckets, range(drafted)):
                reached, kept = counts[key]
                counts[key] = (reached + 1, kept + (accepted > key[1]))
            position += accepted + 1
    return counts
