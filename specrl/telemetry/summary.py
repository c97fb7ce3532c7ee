"""A run's steps in a few figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from specrl.algo.comparison import Arm, arm_of
from specrl.telemetry.jsonl import StepRecord


@dataclass(frozen=True)
class RunSummary:
    """Means over all steps; pairs are (first, last), None where nothing was measured."""

    arm: Arm
    overhead_s: float
    reward: tuple[float, float] | None
    accuracy: tuple[float, float] | None


def summarize(records: Sequence[StepRecord]) -> RunSummary | None:
    """None when no step was finished. The first step, warm-up included, counts like the others."""
    metrics = [record.metrics for record in records]
    if not any("time/step_s" in step for step in metrics):
        return None
    arm = arm_of("run", metrics, warmup_steps=0)
    return RunSummary(
        arm=arm,
        overhead_s=arm.step_s - sum(arm.stage_s.values()),
        reward=_first_last(records, "reward/mean"),
        accuracy=_first_last(records, "eval/accuracy"),
    )


def _first_last(records: Sequence[StepRecord], name: str) -> tuple[float, float] | None:
    values = [record.metrics[name] for record in records if name in record.metrics]
    return (values[0], values[-1]) if values else None
