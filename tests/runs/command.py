"""The real command on the tiny model, in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

from specrl.telemetry.jsonl import read_run

COMMAND = [sys.executable, "-c", "from specrl.cli.train import main; main()"]

# Weight decay and a KL term: losses depend on every earlier step although rewards are rare.
TINY_FP32 = [
    "debug=tiny",
    "rollout.dtype=float32",
    "learner.precision=fp32",
    "rollout.max_tokens=12",
    "rollout.group_size=4",
    "learner.learning_rate=1e-3",
    "learner.weight_decay=0.1",
    "algorithm.kl_coef=0.1",
    "evaluation.every=0",
]


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """Starts specrl with its runs and its MLflow below `folder`, output to `folder/output`."""
    output = (folder / "output").open("a", encoding="utf-8")
    where = [f"output_dir={folder}"]
    if "tracking=none" not in overrides:
        where.append(f"tracking.uri=sqlite:///{folder}/mlflow.db")
    return subprocess.Popen(
        [*COMMAND, *TINY_FP32, *where, *overrides],
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"},
        start_new_session=True,
    )


def run_folder(folder: Path) -> Path:
    """The only run below `folder`."""
    (found,) = folder.glob("arithmetic-*")
    return found


def steps(folder: Path) -> list[dict[str, float]]:
    """Metrics of each step so far; none before the run has begun."""
    if not list(folder.glob("arithmetic-*/metrics.jsonl")):
        return []
    return [dict(record.metrics) for record in read_run(run_folder(folder)).records]
