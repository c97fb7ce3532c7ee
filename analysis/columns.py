"""Which metrics of a run enter the numbers, and the per-step sums they are made of."""

from functools import lru_cache

import pandas as pd

from analysis.records import Run
from specrl.algo.comparison import STAGES

PARTS = (*STAGES, "overhead", "draft", "step")
"""Seconds per step: the five stages, what is left of the step, the draft's share of training."""

TIMES = tuple(f"time/{part}_s" for part in PARTS)
EXPOSED = "time/exposed_generation_s"
TOKENS = "rollout/tokens"
REWARD = "reward/mean"
ACCURACY = "eval/accuracy"
SPEC = (
    "spec/acceptance_length",
    "spec/num_drafts",
    "spec/tokens_per_step",
    "spec/num_decode_steps",
)
EVALUATION = (ACCURACY, "eval/stderr", "eval/num_prompts", "eval/samples")
CORE = (*TIMES, EXPOSED, TOKENS, "rollout/length_mean", REWARD, "init/seconds", *SPEC, *EVALUATION)
"""What is read of every run; acceptance views are read of the runs that are shown only."""

NEEDED = (*(f"time/{part}_s" for part in (*STAGES, "step")), TOKENS)
"""Without a finite value of these a step cannot be counted."""

WARMUP_RULE = (
    "the first {n} step(s) of every run are left out: compilation and cold caches fall into them"
)


@lru_cache(maxsize=1024)
def counted(run: Run, warmup_steps: int) -> pd.DataFrame:
    """[steps, sums]: seconds and counts whose ratios are the figures; index is the RL step.

    `tokens_drafted` is acceptance length x drafts, `tokens_decoded` tokens per engine step x engine
    steps. `exposed` is generation that the learner waited for. Callers share the frame.
    """
    steps = run.steps.iloc[warmup_steps:]
    sums = {part: steps[f"time/{part}_s"] for part in PARTS}
    sums["draft"] = sums["draft"].fillna(0.0)
    stages = sum(sums[stage] for stage in STAGES)
    sums["overhead"] = sums["step"] - stages
    sums["tokens"] = steps[TOKENS]
    sums["drafts"] = steps["spec/num_drafts"].fillna(0.0)
    sums["tokens_drafted"] = (steps["spec/acceptance_length"] * sums["drafts"]).fillna(0.0)
    sums["engine_steps"] = steps["spec/num_decode_steps"].fillna(0.0)
    decoded = steps["spec/tokens_per_step"] * sums["engine_steps"]
    sums["tokens_decoded"] = decoded.fillna(0.0)
    sums["exposed"] = steps[EXPOSED].fillna(steps["time/generation_s"])
    return pd.DataFrame(sums)
