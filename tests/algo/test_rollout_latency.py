"""Latency figures of a step against numbers known in closed form."""

from dataclasses import replace

import pytest

from specrl.algo.rollout_latency import latency_metrics
from specrl.fakes import FakeEngine, FakeTask
from specrl.types import Sampling


def test_latencies_are_summed_up_by_mean_tail_and_slowest() -> None:
    some = FakeEngine(version=0).generate(FakeTask().train(0, 1), 1, Sampling())[0]
    rollouts = [replace(some, latency_s=float(second)) for second in range(101)]
    assert latency_metrics(rollouts) == pytest.approx(
        {
            "rollout/latency_mean_s": 50.0,
            "rollout/latency_p95_s": 95.0,
            "rollout/latency_max_s": 100.0,
        }
    )
