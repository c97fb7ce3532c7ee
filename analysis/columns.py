"""Which metrics of a run enter the numbers, and the per-step sums they are made of."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.records import Problem, Run
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

ROUNDING = 1e-3
"""Seconds, and share of a step, by which stages may exceed it through rounding."""

WARMUP_RULE = (
    "the first {n} step(s) of every run are left out: compilation and cold caches fall into them"
)


def counted(run: Run, warmup_steps: int) -> pd.DataFrame:
    """[steps, sums]: seconds and counts whose ratios are the figures; index is the RL step.

    `tokens_drafted` is acceptance length x drafts, `tokens_decoded` tokens per engine step x engine
    steps. `exposed` is generation that the learner waited for.
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


def examine(run: Run, warmup_steps: int) -> list[Problem]:
    """What is wrong with a run; a `left_out` entry keeps it out of every number."""

    def problem(text: str, left_out: bool) -> Problem:
        return Problem(run.name, text, left_out)

    if not run.config:
        return [problem("run.json is missing or damaged: what it ran with is unknown", True)]
    unknown = _unknown_arm(run.config)
    if unknown:
        return [problem(unknown, True)]
    if run.status is not None and run.status.startswith("failed"):
        crashed = f"{run.status} after {len(run.steps)} steps; crashed runs are left out"
        return [problem(crashed, True)]
    if run.steps.empty:
        return [problem("no finished step", True)]
    if len(run.steps) <= warmup_steps:
        left = f"{len(run.steps)} finished step(s), and the first {warmup_steps} are warm-up"
        return [problem(f"{left}; let it run longer, or use --warmup 0", True)]
    steps = run.steps.iloc[warmup_steps:]
    odd = _odd_values(
        steps, overlapping=run.config.get("execution.max_lag", "0") != "0"
    ) or _odd_acceptance(steps, run.config)
    odd = odd or _odd_bounds(run)
    if odd:
        return [problem(odd, True)]
    gaps = _gap(run.steps.index)
    notes = [problem(gaps, False)] if gaps else []
    planned = run.config.get("steps", "?")
    short = planned.isdecimal() and len(run.steps) < int(planned)
    if run.status != "finished" or (short and not gaps):
        state = run.status or "still going, or killed"
        notes.append(problem(f"{state}: {len(run.steps)} of {planned} steps", False))
    return notes


def _unknown_arm(config: Mapping[str, str]) -> str:
    """Why it cannot be said which arm a config is, "" where it can."""
    if not config.get("drafter.name"):
        return "drafter.name is missing in run.json: which arm it is is unknown"
    lag = config.get("execution.max_lag", "0")
    return "" if lag.isdecimal() else f"execution.max_lag is {lag} in run.json, no number from 0 up"


def _odd_values(steps: pd.DataFrame, overlapping: bool) -> str:
    for name in NEEDED:
        values = steps[name].to_numpy()
        bad = ~np.isfinite(values) | (values < 0)
        if bad.any():
            return f"{name} is {values[bad][0]} at step {steps.index[bad][0]}"
    for name in ("time/generation_s", "time/step_s", TOKENS):
        if not (steps[name] > 0).any():
            return f"{name} is 0 in every step"
    stages = sum(steps[f"time/{stage}_s"] for stage in STAGES)
    longer = stages > steps["time/step_s"] * (1 + ROUNDING) + ROUNDING
    if longer.any() and not overlapping:
        return f"the stages of step {steps.index[longer][0]} take longer than the step"
    rewards = steps[REWARD].to_numpy()
    if np.isinf(rewards).any() or (np.isnan(rewards).any() and not np.isnan(rewards).all()):
        return f"{REWARD} is not finite at step {steps.index[~np.isfinite(rewards)][0]}"
    return ""


def _odd_acceptance(steps: pd.DataFrame, config: Mapping[str, str]) -> str:
    k = config.get("drafter.k", "")
    longest = float(k) + 1 + ROUNDING if k.isdecimal() else np.inf
    for count, value, lowest in (
        ("spec/num_drafts", "spec/acceptance_length", 1.0),
        ("spec/num_decode_steps", "spec/tokens_per_step", 0.0),
    ):
        counts, values = steps[count].fillna(0.0), steps[value]
        wrong = ~np.isfinite(counts) | (counts < 0)
        if wrong.any():
            return f"{count} is {counts[wrong].iloc[0]} at step {steps.index[wrong][0]}"
        fits = np.isfinite(values) & (values >= lowest) & (values <= longest)
        wrong = (counts > 0) & ~fits
        if wrong.any():
            found = f"{value} is {values[wrong].iloc[0]} at step {steps.index[wrong][0]}"
            return f"{found}, not between {lowest:g} and {longest:.4g}"
    return ""


def _odd_bounds(run: Run) -> str:
    """Of metrics that a step may lack: the first value outside of what it can be."""
    for table, name, highest in (
        (run.steps, "time/draft_s", np.inf),
        (run.steps, EXPOSED, np.inf),
        (run.steps, "init/seconds", np.inf),
        (run.evaluations, ACCURACY, 1.0),
    ):
        values = table[name].dropna()
        wrong = ~np.isfinite(values) | (values < 0) | (values > highest)
        if wrong.any():
            return f"{name} is {values[wrong].iloc[0]} at step {values.index[wrong][0]}"
    return ""


def _gap(index: Sequence[int]) -> str:
    steps = np.asarray(index)
    holes = np.flatnonzero(np.diff(steps) > 1)
    if not len(holes):
        return ""
    first = int(steps[holes[0]]) + 1
    missing = int(steps[-1] - steps[0] + 1 - len(steps))
    return f"{missing} steps are missing, the first is {first}"
