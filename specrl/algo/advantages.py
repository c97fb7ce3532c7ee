"""Group-relative advantages (GRPO, arXiv:2402.03300)."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

EPSILON = 1e-6  # keeps a z-score finite for groups with nearly equal rewards


def group_advantages(rewards: Sequence[float], groups: Sequence[int], kind: str) -> list[float]:
    """One advantage per reward, relative to the rewards with the same entry in `groups`.

    kind "mean": reward minus group mean (arXiv:2503.20783). kind "zscore": that, divided by the
    group's population standard deviation plus 1e-6. A group of equal rewards gives exactly 0.
    """
    assert kind in ("mean", "zscore"), kind
    assert len(rewards) == len(groups), (len(rewards), len(groups))
    members = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    advantages = np.zeros(len(rewards))
    values = np.asarray(rewards, dtype=np.float64)
    for indices in members.values():
        advantages[indices] = _centred(values[indices], kind)
    return [float(advantage) for advantage in advantages]


def _centred(rewards: np.ndarray, kind: str) -> np.ndarray:
    if np.all(rewards == rewards[0]):
        return np.zeros_like(rewards)
    centred: np.ndarray = rewards - rewards.mean()
    return centred if kind == "mean" else centred / (rewards.std() + EPSILON)
