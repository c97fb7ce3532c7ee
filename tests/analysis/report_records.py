"""Small synthetic records for the tests of figures and report."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.paper import load_paper
from analysis.records import (
    AmdahlCheck,
    Arm,
    ArmKey,
    Family,
    GridCell,
    Interval,
    Match,
    Report,
    Run,
    Source,
    ViewRow,
)

AR = ArmKey("none")
EAGLE = ArmKey("eagle3", "3", "dapo", "offline")
NGRAM = ArmKey("ngram", "3")


def run(name: str = "run", steps: int = 60, seed: int = 0, latency_s: float = 10.0) -> Run:
    rng = np.random.default_rng(seed)
    index = pd.RangeIndex(steps, name="step")
    drift = np.linspace(0.6, 1.0, steps)
    table = pd.DataFrame(
        {
            "time/generation_s": latency_s * drift * rng.normal(1.0, 0.08, steps),
            "time/step_s": latency_s * 1.4 * drift,
            "spec/acceptance_length": 2.4 + 0.3 * drift + rng.normal(0, 0.06, steps),
            "spec/num_drafts": rng.integers(200, 400, steps).astype(float),
        },
        index=index,
    )
    updates = np.arange(0, steps + 1, 10)
    accuracy = np.clip(0.1 + 0.4 * updates / steps + rng.normal(0, 0.02, len(updates)), 0, 1)
    evaluations = pd.DataFrame(
        {"eval/accuracy": accuracy, "eval/stderr": 0.03}, index=pd.Index(updates, name="step")
    )
    return Run(
        name=name,
        source=f"outputs/{name}",
        key=name,
        config={"drafter.name": "eagle3", "seed": str(seed), "name": "rl_zero_cpu"},
        steps=table,
        evaluations=evaluations,
        status="finished",
        created_s=1.8e9,
        git_commit="760fa13dc88b2fc7675fbdcb7f5ef1b8df973b30",
        machine="2 cores",
    )


def arm(key: ArmKey, runs: tuple[Run, ...], generation_s: float = 10.0) -> Arm:
    other = {"data": 0.1, "prepare": 0.5, "logprob": 1.5, "training": 5.0, "overhead": 0.2}
    stages = {"generation": generation_s, **other}
    stage_s = {
        name: Interval(value, value * 0.95, value * 1.05, 50) for name, value in stages.items()
    }
    step_s = sum(stages.values())
    stage_s["step"] = Interval(step_s, step_s * 0.96, step_s * 1.04, 50)
    drafts = key.drafter != "none"
    return Arm(
        key=key,
        runs=runs,
        steps=50,
        stage_s=stage_s,
        tokens=Interval(1000.0, 950.0, 1050.0, 50),
        generation_share=Interval(generation_s / step_s, 0.5, 0.7, 50),
        tokens_per_s=Interval(1000 / generation_s, steps=50),
        acceptance=Interval(2.6, 2.5, 2.7, 50) if drafts else None,
        tokens_per_step=Interval(2.5, 2.4, 2.6, 50) if drafts else None,
    )


def family(title: str = "RL-Zero, CPU") -> Family:
    plain = arm(AR, (run("plain", seed=1, latency_s=10.0), run("plain-1", seed=2)), 10.0)
    eagle = arm(EAGLE, (run("eagle", seed=3, latency_s=5.0),), 5.0)
    match = Match(
        plain, eagle, seeds=("0",), steps=50, generation=Interval(2.0, 1.9, 2.1, 50),
        generation_latency=Interval(2.0, 1.9, 2.1, 50), step=Interval(1.41, 1.36, 1.46, 50),
    )  # fmt: skip
    return Family("rl_zero", "rl_zero_cpu", title, "", (plain, eagle), (match,), ())


def check(
    title: str = "RL-Zero, CPU",
    source: Source = "ours",
    violation: str = "",
    saved: Mapping[str, float] | None = None,
) -> AmdahlCheck:
    saved = saved or {
        "generation": 4.6, "tokens": 0.4, "data": 0.0, "prepare": -0.3, "logprob": 0.02,
        "training": 0.4, "overhead": 0.01,
    }  # fmt: skip
    before = {"data": 0.1, "prepare": 0.5, "generation": 10.0, "logprob": 1.5, "training": 5.0}
    after = {"data": 0.1, "prepare": 0.8, "generation": 5.0, "logprob": 1.48, "training": 4.6}
    return AmdahlCheck(
        title=title,
        regime="rl_zero",
        label=EAGLE.label,
        source=source,
        share=Interval(0.58, 0.56, 0.6, 50),
        acceptance=Interval(2.6, 2.5, 2.7, 50),
        generation=Interval(2.0, 1.9, 2.1, 50),
        step=Interval(1.42, 1.37, 1.47, 50) if source == "ours" else Interval(1.41),
        bound=Interval(1.56, 1.5, 1.6, 50),
        engine_bound=Interval(1.54, 1.5, 1.58, 50),
        limit=Interval(1.54, 1.5, 1.58, 50),
        predicted=Interval(1.41, 1.36, 1.45, 50),
        cost=Interval(1.3, 1.2, 1.4, 50),
        saved_s={
            part: Interval(value, value - 0.1, value + 0.1, 50) for part, value in saved.items()
        },
        step_saved_s=Interval(5.13, 4.9, 5.4, 50),
        baseline_s={**before, "overhead": 0.2, "step": 17.3},
        arm_s={**after, "overhead": 0.19, "step": 12.17},
        violation=violation,
    )


def views(title: str = "RL-Zero, CPU", label: str = EAGLE.label) -> tuple[ViewRow, ...]:
    rates = [ViewRow(title, label, "position", str(i), i, 0.8 - 0.2 * i, 500.0, 0.76 - 0.2 * i,
                     0.84 - 0.2 * i) for i in range(3)]  # fmt: skip
    deciles = [ViewRow(title, label, "decile", str(i), i, 2.0 + 0.05 * i, 90.0) for i in range(10)]
    lengths = [
        ViewRow(title, label, "length", bucket, i, 1.8 + 0.2 * i, count)
        for i, (bucket, count) in enumerate(
            [("0002-0003", 8.0), ("0004-0007", 60.0), ("0064-0127", 900.0), ("1024-2047", 40.0)]
        )
    ]
    lags = [ViewRow(title, label, "lag", str(i), i, 2.6 - 0.1 * i, 200.0) for i in range(3)]
    return (*rates, *deciles, *lengths, *lags)


def full_report() -> Report:
    """Every part that a figure is drawn from has something in it."""
    return Report(
        created="2026-11-30 12:00 UTC",
        paper=load_paper(),
        warmup_steps=1,
        runs=(run("plain"), run("eagle")),
        families=(family(),),
        checks=(check(), check("RL-Zero", "paper")),
        views=views(),
        grid=(
            GridCell("acceptance", "qwen3_235b_a22b", "printed", k=1, acceptance=1.5, rollout=1.45,
                     end_to_end=1.25),
            GridCell("acceptance", "qwen3_235b_a22b", "printed", k=3, acceptance=3.0, rollout=2.72,
                     end_to_end=1.70),
            GridCell("acceptance", "qwen3_235b_a22b", "reconstructed", k=3, acceptance=2.0,
                     rollout=1.81, end_to_end=1.41),
            GridCell("acceptance", "qwen3_235b_a22b", "interpolated", k=5, acceptance=4.0,
                     rollout=3.43, end_to_end=1.85),
            GridCell("scale", "qwen3_235b_a22b", "printed", gpus=32, lag=0, rollout=1.9),
        ),
    )  # fmt: skip
