"""Validation accuracy with the engine that makes the rollouts."""

from dataclasses import dataclass, replace

import numpy as np

from specrl.algo.acceptance import spec_metrics
from specrl.protocols import RolloutEngine, Task, Telemetry
from specrl.types import Metrics, Sampling

_SEED_OFFSET = 1_000_003


@dataclass(frozen=True)
class EvaluationPlan:
    """When and how much to evaluate; `every` 0 = never."""

    every: int
    num_prompts: int
    samples: int

    def due(self, step: int, last_step: int) -> bool:
        """True at the start, at the end and every n steps between."""
        return self.every > 0 and (step % self.every == 0 or step == last_step)


def evaluate(
    task: Task,
    engine: RolloutEngine,
    telemetry: Telemetry,
    sampling: Sampling,
    plan: EvaluationPlan,
) -> Metrics:
    """pass@1 over validation prompts, and its standard error between prompts (`eval/*`)."""
    prompts = task.validation(plan.num_prompts)
    seed = None if sampling.seed is None else sampling.seed + _SEED_OFFSET
    rollouts = engine.generate(
        prompts, plan.samples, replace(sampling, seed=seed), telemetry.progress("evaluation")
    )
    scores = np.asarray(task.rewards(rollouts)).reshape(len(prompts), plan.samples)
    per_prompt = scores.mean(axis=1)
    spread = per_prompt.std(ddof=1) if len(prompts) > 1 else float("nan")
    spec = {f"eval/{key}": value for key, value in spec_metrics(r.spec for r in rollouts).items()}
    return {
        "eval/accuracy": float(per_prompt.mean()),
        "eval/stderr": float(spread / np.sqrt(len(prompts))),
        "eval/num_prompts": float(len(prompts)),
        "eval/samples": float(plan.samples),
        "eval/length_mean": float(np.mean([len(r.token_ids) for r in rollouts])),
        **spec,
    }
