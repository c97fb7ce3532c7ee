"""Matched arms side by side: stage means, speedups and what bounds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specrl.algo.amdahl import step_speedup, verification_cost
from specrl.errors import UserError

STAGES = ("data", "prepare", "generation", "logprob", "training")
StepMetrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Arm:
    """Means over the steps of one run.

    `generation_share` is R_gen; `acceptance_length` and `tokens_per_step` are weighted by their
    denominators and None where nothing was drafted.
    """

    name: str
    steps: int
    stage_s: Mapping[str, float]
    step_s: float
    tokens: float
    acceptance_length: float | None
    tokens_per_step: float | None

    @property
    def generation_share(self) -> float:
        return self.stage_s["generation"] / self.step_s if self.step_s else 0.0

    @property
    def generation_tokens_per_s(self) -> float | None:
        seconds = self.stage_s["generation"]
        return self.tokens / seconds if seconds and self.tokens else None


@dataclass(frozen=True)
class Speedup:
    """An arm against the autoregressive one.

    Generation is compared per token, since the arms' responses differ in length; `step` compares
    seconds a step as they are; `step_per_token` what the step would gain at equal lengths. `bound`
    is Amdahl's, from the tokens an engine step yields. Costs are in autoregressive steps:
    `step_cost` of a mean engine step, drafted or not; `draft_cost` is c(k) = alpha / S, alpha being
    the acceptance length. None where nothing was drafted.
    """

    generation: float
    step: float
    step_per_token: float
    bound: float | None
    step_cost: float | None
    draft_cost: float | None


def arm_of(name: str, steps: Sequence[StepMetrics], warmup_steps: int = 1) -> Arm:
    """The first `warmup_steps` are left out where there are others.

    Raises `UserError` when no step was completed.
    """
    complete = [step for step in steps if step.get("time/step_s") is not None]
    if not complete:
        raise UserError(f"run {name} has no finished step; let it run for at least one")
    counted = complete[warmup_steps:] or complete
    return Arm(
        name=name,
        steps=len(counted),
        stage_s={stage: _mean(counted, f"time/{stage}_s") for stage in STAGES},
        step_s=_mean(counted, "time/step_s"),
        tokens=_mean(counted, "rollout/tokens"),
        acceptance_length=_weighted(counted, "spec/acceptance_length", "spec/num_drafts"),
        tokens_per_step=_weighted(counted, "spec/tokens_per_step", "spec/num_decode_steps"),
    )


def speedup_over(baseline: Arm, arm: Arm) -> Speedup:
    """What `arm` gains over `baseline`. Raises `UserError` when one of them generated nothing."""
    rate, baseline_rate = arm.generation_tokens_per_s, baseline.generation_tokens_per_s
    if rate is None or baseline_rate is None:
        raise UserError(f"{baseline.name} and {arm.name}: one of them generated no tokens")
    generation = rate / baseline_rate
    alpha, per_step = arm.acceptance_length, arm.tokens_per_step
    share = baseline.generation_share
    return Speedup(
        generation=generation,
        step=baseline.step_s / arm.step_s,
        step_per_token=step_speedup(share, generation),
        bound=None if per_step is None else step_speedup(share, per_step),
        step_cost=None if per_step is None else verification_cost(per_step, generation),
        draft_cost=None if alpha is None else verification_cost(alpha, generation),
    )


def figures(arm: Arm, gain: Speedup | None) -> dict[str, float]:
    """What an arm is compared by, under short names; what was not measured is left out.

    Seconds are means over the steps of the run; `gain` is None without an autoregressive arm.
    """
    known: dict[str, float | None] = {
        **{f"{stage}_s": arm.stage_s[stage] for stage in STAGES},
        "step_s": arm.step_s,
        "steps": arm.steps,
        "tokens": arm.tokens,
        "tokens_per_s": arm.generation_tokens_per_s,
        "R_gen": arm.generation_share,
        "acceptance_length": arm.acceptance_length,
        "tokens_per_step": arm.tokens_per_step,
    }
    if gain is not None:
        known |= {
            "speedup_generation": gain.generation,
            "speedup_step": gain.step,
            "speedup_step_equal_tokens": gain.step_per_token,
            "amdahl_bound": gain.bound,
            "engine_step_cost": gain.step_cost,
            "c_k": gain.draft_cost,
        }
    return {name: float(value) for name, value in known.items() if value is not None}


def _mean(steps: Sequence[StepMetrics], key: str) -> float:
    return sum(float(step.get(key) or 0.0) for step in steps) / len(steps)


def _weighted(steps: Sequence[StepMetrics], key: str, weight: str) -> float | None:
    pairs = [(step.get(key), step.get(weight)) for step in steps]
    known = [(value, w) for value, w in pairs if value is not None and w]
    total = sum(w for _, w in known)
    return sum(value * w for value, w in known) / total if total else None
