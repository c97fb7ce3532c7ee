"""How long responses took, from when the engine took them on to their last token."""

from collections.abc import Sequence

import numpy as np

from specrl.types import Metrics, Rollout


def latency_metrics(rollouts: Sequence[Rollout]) -> Metrics:
    """`rollout/latency_{mean,p95,max}_s`, waiting in the engine's queue included."""
    seconds = np.asarray([rollout.latency_s for rollout in rollouts])
    return {
        "rollout/latency_mean_s": float(seconds.mean()),
        "rollout/latency_p95_s": float(np.percentile(seconds, 95)),
        "rollout/latency_max_s": float(seconds.max()),
    }
