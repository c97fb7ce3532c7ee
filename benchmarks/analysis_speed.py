"""Seconds that `python -m analysis` takes for 200 runs of 500 steps, from folders and from MLflow.

    python benchmarks/analysis_speed.py [--runs 200] [--steps 500] [--only folders]

Runs are two regimes x ten arms x seeds; a drafted step has as many metrics as a real one (264).
The MLflow file holds the figures that tables need and one run's acceptance views per arm. Writes
every repetition and the medians to results/.
"""

import argparse
import json
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from result import machine, publish

from specrl.telemetry.replay import replay

ARMS = (
    ("none", None, None, None),
    ("ngram", 3, None, None),
    *(("eagle3", 3, init, how) for init in ("ultrachat", "dapo") for how in ("offline", "online")),
    ("eagle3", 5, "dapo", "offline"),
    ("eagle3", 7, "dapo", "offline"),
    ("eagle3", 1, "dapo", "offline"),
    ("mtp", 3, None, None),
)
DISTINCT = 40
REPLAYED = 2
REGIMES = ("rl_think_cpu", "rl_zero_cpu")
BUCKETS = {"lag": 1, "length": 7, "decile": 10, "entropy": 6, "token_entropy": 7}
SECONDS = {"data": 0.1, "prepare": 0.5, "generation": 9.0, "logprob": 2.0, "training": 5.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=("folders", "mlflow"), help="one source")
    parser.add_argument("--name", default="analysis_speed", help="of the file in results/")
    options = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as place:
        measured = measure(Path(place), options)
    result = {
        "what": "seconds of python -m analysis, its start and the pictures included",
        "runs": options.runs,
        "steps": options.steps,
        **{f"{name}_median_s": statistics.median(all_s) for name, all_s in measured.items()},
        **{f"{name}_s": all_s for name, all_s in measured.items()},
        "note": "cpu: seconds of all its processes together, which share the cores",
    }
    publish(result, before, "analysis", f"{options.name}_{before['cores']}cores")


def measure(root: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Wall and CPU seconds of every repetition, by source."""
    write_runs(root / "runs", options.runs, options.steps)
    words = {}
    if options.only != "mlflow":
        words["folders"] = ["--runs", str(root / "runs")]
    if options.only != "folders":
        words["mlflow"] = ["--mlflow", fill_mlflow(root)]
    found: dict[str, list[float]] = {}
    for name, given in words.items():
        pairs = [seconds_of(root, given) for _ in range(options.repetitions)]
        found[f"{name}_wall"], found[f"{name}_cpu"] = map(list, zip(*pairs, strict=True))
    return found


def write_runs(root: Path, runs: int, steps: int) -> None:
    """Run folders with noise around one truth; an arm's steps repeat after `DISTINCT`."""
    rng = np.random.default_rng(0)
    texts = {
        arm: [json.dumps(metrics_of(arm, step, rng)) for step in range(DISTINCT)] for arm in ARMS
    }
    for number in range(runs):
        regime = REGIMES[number % len(REGIMES)]
        arm = ARMS[number // len(REGIMES) % len(ARMS)]
        seed = number // (len(REGIMES) * len(ARMS))
        folder = root / f"{regime}-{'-'.join(map(str, arm))}-{seed}"
        folder.mkdir(parents=True)
        info: dict[str, Any] = {
            "key": f"{number:032x}", "previous_key": None, "created_s": 1000.0 + number,
            "config": config_of(regime, arm, seed, steps), "overrides": [], "tags": {},
            "specrl_version": "0", "git_commit": "benchmark", "status": "finished",
            "finished_s": 2000.0 + number, "machine": "benchmark",
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(info))
        with (folder / "metrics.jsonl").open("w") as file:
            for step in range(steps):
                text = texts[arm][(step + seed) % DISTINCT]
                file.write(f'{{"step": {step}, "time": {1000.0 + step}, "metrics": {text}}}\n')


def config_of(regime: str, arm: tuple[Any, ...], seed: int, steps: int) -> dict[str, Any]:
    """The part of a config that the analysis looks at."""
    drafter, k, init, how = arm
    return {
        "name": regime, "seed": seed, "steps": steps, "model": {"name": "m"},
        "task": {"name": "arithmetic", "seed": seed}, "rollout": {"max_tokens": 64, "seed": seed},
        "drafter": {"name": drafter, **({"k": k} if k else {})},
        "init": {"name": init or "none"}, "adaptation": {"name": how or "offline"},
        "execution": {"max_lag": 0},
    }  # fmt: skip


def metrics_of(arm: tuple[Any, ...], step: int, rng: np.random.Generator) -> dict[str, float]:
    """One step's metrics, with all acceptance views where the arm drafts."""
    drafter, k, *_ = arm
    length = 1.0 if drafter == "none" else 1.0 + 0.5 * min(k, 3)
    faster = 1.0 if drafter == "none" else 0.6 * length
    times = {f"time/{s}_s": v * rng.lognormal(0, 0.05) for s, v in SECONDS.items()}
    times["time/generation_s"] /= faster
    metrics = {
        **times, "time/step_s": sum(times.values()) + 0.01, "rollout/tokens": 2000.0 + step,
        "reward/mean": 0.4 + rng.normal(0, 0.05),
        **{f"policy/metric_{i}": rng.normal() for i in range(15)},
    }  # fmt: skip
    if step % 20 == 0:
        metrics |= {"eval/accuracy": 0.5, "eval/num_prompts": 80.0, "eval/samples": 4.0}
    if drafter == "none":
        return metrics
    alpha = length + rng.normal(0, 0.05)
    metrics |= {"spec/tokens_per_step": alpha, "spec/num_decode_steps": 800.0}
    for prefix in ("spec", *views()):
        metrics[f"{prefix}/num_drafts"] = 700.0
        metrics[f"{prefix}/acceptance_length"] = alpha
        for position in range(min(k, 3)):
            metrics[f"{prefix}/acceptance_rate_pos_{position}"] = 0.5
            metrics[f"{prefix}/drafted_pos_{position}"] = 700.0
    return metrics


def views() -> list[str]:
    return [f"spec/by_{view}/{number:04d}" for view, n in BUCKETS.items() for number in range(n)]


def fill_mlflow(root: Path) -> str:
    """MLflow makes its tables and one run of every arm, of `REPLAYED` steps; the other steps and
    seeds are rows of the same kind, since MLflow itself takes half an hour for all of them."""
    file = root / "mlflow.db"
    uri = f"sqlite:///{file}"
    folders = sorted((root / "runs").iterdir())
    originals = {folder.name.rpartition("-")[0]: folder for folder in folders[::-1]}
    ids = {name: replay(beginning(folder, root), uri, "specrl").run_id
           for name, folder in originals.items()}  # fmt: skip
    copies = [folder for folder in folders if folder not in originals.values()]
    with sqlite3.connect(file) as database:
        database.execute("pragma synchronous = off")
        for name, folder in originals.items():
            columns = "run_uuid, step, timestamp, key, value, is_nan"
            database.executemany(
                f"insert into metrics ({columns}) values (?, ?, ?, ?, ?, 0)",
                later_rows(ids[name], folder),
            )
        for number, folder in enumerate(copies):
            name, _, seed = folder.name.rpartition("-")
            copy_run(database, ids[name], f"{number:032x}", seed)
    return uri


def beginning(folder: Path, root: Path) -> Path:
    """The run's first `REPLAYED` steps as a folder of their own."""
    short = root / "beginnings" / folder.name
    short.mkdir(parents=True)
    shutil.copy(folder / "run.json", short)
    with (folder / "metrics.jsonl").open() as file:
        (short / "metrics.jsonl").write_text("".join(islice(file, REPLAYED)))
    return short


def later_rows(run_id: str, folder: Path) -> Iterator[tuple[str, int, int, str, float]]:
    with (folder / "metrics.jsonl").open() as file:
        for line in islice(file, REPLAYED, None):
            step = json.loads(line)
            for key, value in step["metrics"].items():
                yield run_id, step["step"], int(1000 * step["time"]), key, value


def copy_run(database: sqlite3.Connection, original: str, copy: str, seed: str) -> None:
    """A run's rows under another id, its views left out, with another seed and run key."""
    for table in ("runs", "params", "tags", "metrics", "latest_metrics"):
        columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
        chosen = ", ".join("?" if column == "run_uuid" else column for column in columns)
        kept = " and key not like 'spec/by_%'" if "metrics" in table else ""
        database.execute(
            f"insert into {table} ({', '.join(columns)}) select {chosen} from {table} "
            f"where run_uuid = ?{kept}",
            (copy, original),
        )
    seeds = "'seed', 'task.seed', 'rollout.seed'"
    database.execute(
        f"update params set value = ? where run_uuid = ? and key in ({seeds})", (seed, copy)
    )
    database.execute(
        "update tags set value = ? where run_uuid = ? and key = 'specrl.run_key'", (copy, copy)
    )


def seconds_of(root: Path, words: list[str]) -> tuple[float, float]:
    """Wall and CPU time of the whole command, its start and the pictures included."""
    command = [sys.executable, "-m", "analysis", *words, "--out", str(root / "report")]
    began, cpu_s = time.monotonic(), children_cpu_s()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return round(time.monotonic() - began, 1), round(children_cpu_s() - cpu_s, 1)


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
