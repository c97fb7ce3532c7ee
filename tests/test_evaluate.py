"""Evaluation against numbers worked by hand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from specrl.evaluate import EvaluationPlan, evaluate
from specrl.fakes import FakeEngine, FakeTask, FakeTelemetry
from specrl.types import Metrics, Prompt, Rollout, Sampling

# Means 3/4, 1/4 and 1: together 2/3, squared deviations 1/144, 25/144 and 16/144.
RIGHT = ((True, True, True, False), (False, False, True, False), (True, True, True, True))


@dataclass
class KnownEngine(FakeEngine):
    """Sample s of prompt p is right where `right[p][s]` says so."""

    right: Sequence[Sequence[bool]] = RIGHT

    def _rollout(self, prompt: Prompt, group: int, sample: int, *rest: Any) -> Rollout:
        text = str(prompt.reference["answer"]) if self.right[group][sample] else "no idea"
        return replace(super()._rollout(prompt, group, sample, *rest), text=text)


def evaluated(right: Sequence[Sequence[bool]]) -> Metrics:
    engine = KnownEngine(version=0, right=right)
    plan = EvaluationPlan(every=1, num_prompts=len(right), samples=len(right[0]))
    return evaluate(FakeTask(), engine, FakeTelemetry(), Sampling(max_tokens=5, seed=7), plan)


def test_accuracy_is_the_mean_over_prompts_and_its_error_the_spread_between_them() -> None:
    metrics = evaluated(RIGHT)
    assert metrics["eval/accuracy"] == pytest.approx(2 / 3)
    # 42/144 over 2 degrees of freedom, over 3 prompts.
    assert metrics["eval/stderr"] == pytest.approx(math.sqrt(7) / 12)
    assert (metrics["eval/num_prompts"], metrics["eval/samples"]) == (3, 4)


def test_samples_of_one_prompt_do_not_count_as_independent() -> None:
    sure = [[True] * 8, [False] * 8]
    assert evaluated(sure)["eval/stderr"] == pytest.approx(0.5)
    halves = [[True, False] * 4, [False, True] * 4]
    assert evaluated(halves)["eval/accuracy"] == 0.5
    assert evaluated(halves)["eval/stderr"] == 0.0


def test_one_prompt_has_no_error() -> None:
    metrics = evaluated(RIGHT[:1])
    assert metrics["eval/accuracy"] == 0.75
    assert math.isnan(metrics["eval/stderr"])
