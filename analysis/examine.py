"""What is wrong with a run: found before it enters any number, told by name."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.columns import ACCURACY, EXPOSED, NEEDED, REWARD, TOKENS
from analysis.records import Problem, Run
from specrl.algo.comparison import STAGES

Floats = NDArray[np.float64]

ROUNDING = 1e-3
"""Seconds, and share of a step, by which stages may exceed it through rounding."""

_POSITION = re.compile(r"(.+)/(acceptance_rate|drafted)_pos_(\d+)")


def examine(run: Run, warmup_steps: int) -> list[Problem]:
    """What is wrong with a run; a `left_out` entry keeps it out of every number."""

    def problem(text: str, left_out: bool) -> Problem:
        return Problem(run.name, text, left_out)

    unread = [problem(note, False) for note in run.notes]
    if not run.config:
        unknown = "run.json is missing or damaged: what it ran with is unknown; start it again"
        return [*unread, problem(unknown, True)]
    reason = _unusable(run, warmup_steps)
    if reason:
        return [*unread, problem(reason, True)]
    gaps = _gap(run.steps.index)
    notes = [*unread, *([problem(gaps, False)] if gaps else [])]
    planned = run.config.get("steps", "?")
    short = planned.isdecimal() and len(run.steps) < int(planned)
    if run.status != "finished" or (short and not gaps):
        state = run.status or "still going, or killed"
        notes.append(problem(f"{state}: {len(run.steps)} of {planned} steps", False))
    return notes


def odd_views(views: pd.DataFrame) -> str:
    """The first `spec/*` value of a run that cannot be, "" without one.

    A position's rate lies in [0, 1], and no more drafts reach it than the one before.
    """
    found = [match for name in views.columns if (match := _POSITION.fullmatch(name))]
    for match in sorted(found, key=lambda match: (match[1], int(match[3]))):
        most, why = _most(views, match)
        values = _floats(views, match[0])
        wrong = (values < 0) | (values > most)
        if wrong.any():
            return f"{_first(match[0], views, values, wrong)}, {why}"
    return ""


def _most(views: pd.DataFrame, match: re.Match[str]) -> tuple[Floats | float, str]:
    """The highest value that a position's metric can have at each step, and why."""
    if match[2] == "acceptance_rate":
        return 1.0 + ROUNDING, "outside [0, 1]"
    before = f"{match[1]}/drafted_pos_{int(match[3]) - 1}"
    if before not in views:
        return float(np.finfo(float).max), "below 0 or not finite"
    return np.nan_to_num(_floats(views, before)), "below 0 or above the position before it"


def _unusable(run: Run, warmup_steps: int) -> str:
    """Why no number can come from a run, "" where it can."""
    unknown = _unknown_arm(run.config)
    if unknown:
        return unknown
    if run.status is not None and run.status.startswith("failed"):
        return f"{run.status} after {len(run.steps)} steps; left out until its command went on"
    if run.steps.empty:
        return "no finished step; let it run longer"
    if len(run.steps) <= warmup_steps:
        left = f"{len(run.steps)} finished step(s), and the first {warmup_steps} are warm-up"
        return f"{left}; let it run longer, or use --warmup 0"
    steps = run.steps.iloc[warmup_steps:]
    overlapping = run.config.get("execution.max_lag", "0") != "0"
    return _odd_values(steps, overlapping) or _odd_acceptance(steps, run.config) or _odd_bounds(run)


def _unknown_arm(config: Mapping[str, str]) -> str:
    """Why it cannot be said which arm a config is, "" where it can."""
    if not config.get("drafter.name"):
        return "drafter.name is missing in run.json: which arm it is is unknown"
    lag = config.get("execution.max_lag", "0")
    return "" if lag.isdecimal() else f"execution.max_lag is {lag} in run.json, no number from 0 up"


def _odd_values(steps: pd.DataFrame, overlapping: bool) -> str:
    columns = {name: _floats(steps, name) for name in (*NEEDED, REWARD)}
    for name in NEEDED:
        values = columns[name]
        found = _first(name, steps, values, ~np.isfinite(values) | (values < 0))
        if found:
            return found
    for name in ("time/generation_s", "time/step_s", TOKENS):
        if not (columns[name] > 0).any():
            return f"{name} is 0 in every step"
    stages = np.sum([columns[f"time/{stage}_s"] for stage in STAGES], axis=0)
    longer = stages > columns["time/step_s"] * (1 + ROUNDING) + ROUNDING
    if longer.any() and not overlapping:
        return f"the stages of step {steps.index[longer][0]} take longer than the step"
    rewards = columns[REWARD]
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
        counts = np.nan_to_num(_floats(steps, count), posinf=np.inf, neginf=-np.inf)
        values = _floats(steps, value)
        found = _first(count, steps, counts, ~np.isfinite(counts) | (counts < 0))
        if found:
            return found
        fits = np.isfinite(values) & (values >= lowest) & (values <= longest)
        found = _first(value, steps, values, (counts > 0) & ~fits)
        if found:
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
        values = _floats(table, name)
        wrong = np.isinf(values) | (values < 0) | (values > highest)
        found = _first(name, table, values, wrong)
        if found:
            return found
    return ""


def _floats(table: pd.DataFrame, name: str) -> Floats:
    values: Floats = table[name].to_numpy(float)
    return values


def _first(name: str, table: pd.DataFrame, values: Floats, wrong: NDArray[np.bool_]) -> str:
    """Names the first wrong value and its step, "" without one."""
    return f"{name} is {values[wrong][0]} at step {table.index[wrong][0]}" if wrong.any() else ""


def _gap(index: Sequence[int]) -> str:
    steps = np.asarray(index)
    holes = np.flatnonzero(np.diff(steps) > 1)
    if not len(holes):
        return ""
    first = int(steps[holes[0]]) + 1
    missing = int(steps[-1] - steps[0] + 1 - len(steps))
    return f"{missing} steps are missing, the first is {first}"
