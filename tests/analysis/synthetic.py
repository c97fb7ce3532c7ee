"""Runs with a known truth, in memory and as folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.columns import ACCURACY, CORE
from analysis.records import Run
from specrl.telemetry.jsonl import JsonlSink

CONFIG = {
    "name": "rl_zero_cpu",
    "seed": "0",
    "task.name": "arithmetic",
    "task.seed": "0",
    "model.name": "tiny",
    "rollout.seed": "0",
    "rollout.max_tokens": "64",
    "rollout.prompts_per_step": "4",
    "rollout.engine_args": "{}",
    "learner.tensor_parallel": "1",
    "execution.max_lag": "0",
    "steps": "40",
    "output_dir": "outputs",
    "drafter.name": "none",
    "init.name": "none",
    "adaptation.name": "offline",
}
AR = {"drafter.name": "none"}
EAGLE = {"drafter.name": "eagle3", "drafter.k": "3", "init.name": "dapo"}


@dataclass(frozen=True)
class Truth:
    """Seconds per step of an autoregressive arm, and what speculation does to generation.

    `noise` is the relative spread of every time; `drift` how much responses grow over the run.
    """

    generation_s: float = 10.0
    training_s: float = 4.0
    logprob_s: float = 2.0
    tokens: float = 2000.0
    alpha: float = 1.0
    cost: float = 1.0
    noise: float = 0.05
    drift: float = 0.5
    reward: float = 0.4
    accuracy: float = 0.5

    @property
    def generation_speedup(self) -> float:
        return self.alpha / self.cost

    @property
    def step_s(self) -> float:
        return self.generation_s + self.training_s + self.logprob_s + 0.3

    @property
    def share(self) -> float:
        return self.generation_s / self.step_s


def run_of(
    config: Mapping[str, str] = AR,
    truth: Truth | None = None,
    steps: int = 40,
    seed: int = 0,
    name: str = "",
    **fields: Any,
) -> Run:
    """A finished run whose steps follow `truth`."""
    truth = truth or Truth()
    full = {**CONFIG, **config}
    rng = np.random.default_rng([seed, len(full["drafter.name"]), int(full.get("drafter.k", 0))])
    frame = pd.DataFrame(_steps(truth, steps, rng, drafted=full["drafter.name"] != "none"))
    frame = frame.reindex(columns=list(CORE))
    frame.index.name = "step"
    made = Run(
        name=name or f"{full['drafter.name']}-{full.get('drafter.k', '')}-{full['seed']}",
        source=f"memory/{full['drafter.name']}",
        key=f"{full}{seed}",
        config=full,
        steps=frame,
        evaluations=frame[frame[ACCURACY].notna()],
        status="finished",
        created_s=1000.0,
        git_commit="abc",
        machine="2 x CPU",
    )
    return replace(made, **fields)


def write_folder(folder: Path, run: Run, status: str = "finished") -> Path:
    """The run as `JsonlSink` writes it."""
    ticks = iter(range(10**6))
    config: dict[str, Any] = {}
    for key, value in run.config.items():
        *parents, last = key.split(".")
        place = config
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = int(value) if value.isdigit() else {} if value == "{}" else value
    sink = JsonlSink(
        folder, config=config, overrides=["experiment=x"], wall_clock=lambda: 1000.0 + next(ticks)
    )
    sink.start()
    for step, row in run.steps.iterrows():
        sink.log(int(step), {name: float(value) for name, value in row.dropna().items()})
    sink.finish(status)
    return folder


def views_of(runs: Sequence[Run]) -> list[pd.DataFrame]:
    """`spec/*` metrics of each run's steps with position rates that give its acceptance length."""
    return [_views(run) for run in runs]


def _views(run: Run) -> pd.DataFrame:
    alpha, drafts = run.steps["spec/acceptance_length"], run.steps["spec/num_drafts"]
    rate = (alpha - 1) / 3
    positions = {f"spec/acceptance_rate_pos_{i}": rate for i in range(3)}
    positions |= {f"spec/drafted_pos_{i}": drafts for i in range(3)}
    lag = {"spec/by_lag/0/num_drafts": drafts, "spec/by_lag/0/acceptance_length": alpha}
    columns = {"spec/num_drafts": drafts, **positions, **lag}
    return pd.DataFrame(columns)


def no_views(runs: Sequence[Run]) -> list[pd.DataFrame]:
    return [pd.DataFrame(index=run.steps.index) for run in runs]


def untold(text: str) -> None:
    del text


def _steps(
    truth: Truth, steps: int, rng: np.random.Generator, drafted: bool
) -> dict[str, np.ndarray]:
    def spread() -> np.ndarray:
        return np.exp(rng.normal(-(truth.noise**2) / 2, truth.noise, steps))

    growth = 1 + truth.drift * (np.arange(steps) / max(1, steps - 1) - 0.5)
    tokens = np.round(truth.tokens * growth)
    per_token = truth.generation_s / truth.tokens / truth.generation_speedup
    times = {
        "data": 0.1 * spread(),
        "prepare": 0.2 * spread(),
        "generation": tokens * per_token * spread(),
        "logprob": truth.logprob_s * growth * spread(),
        "training": truth.training_s * growth * spread(),
    }
    columns = {f"time/{stage}_s": seconds for stage, seconds in times.items()}
    columns["time/step_s"] = sum(times.values())
    columns["rollout/tokens"] = tokens
    columns["reward/mean"] = truth.reward + rng.normal(0, 0.05, steps)
    if drafted:
        drafts = np.round(tokens / truth.alpha)
        columns["spec/num_drafts"] = drafts
        columns["spec/acceptance_length"] = truth.alpha * spread()
        columns["spec/num_decode_steps"] = drafts
        columns["spec/tokens_per_step"] = tokens / drafts
    evaluated = np.arange(steps) % 10 == 0
    samples = 320
    right = rng.binomial(samples, truth.accuracy, steps) / samples
    columns["eval/accuracy"] = np.where(evaluated, right, np.nan)
    columns["eval/num_prompts"] = np.where(evaluated, 80.0, np.nan)
    columns["eval/samples"] = np.where(evaluated, 4.0, np.nan)
    return columns
