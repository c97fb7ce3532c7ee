"""Where a run lives: a folder named after what determines its results."""

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specrl.config.train import TrainConfig

# Of the cluster only what numbers and times depend on: a run may move from this machine to a Slurm
# partition of the same hardware, or to more nodes, and go on.
CLUSTER = ("hardware", "gpus_per_engine", "gpus_per_learner_rank")

# Keys that change where, how long or how visibly a run runs, never its numbers.
IGNORED = (
    "name",
    "steps",
    "output_dir",
    "rerun",
    "checkpoint",
    "tracking",
    "model.cache_dir",
    "drafter.remeasure",
    "rollout.cores",
    "learner.cores",
)


def signature(config: TrainConfig) -> str:
    """Eight hex digits of the config's SHA-256, the same on every machine and in any key order."""
    values = asdict(config)
    for key in IGNORED:
        _drop(values, key)
    values["cluster"] = {key: values["cluster"][key] for key in CLUSTER}
    if config.drafter.name == "none":
        _drop(values, "drafter.k")
    if config.drafter.learned:
        _drop(values, "drafter.on_collapse")
        _drop(values, "drafter.health")
        if config.adaptation.name == "offline":
            values["adaptation"] = "offline"
    else:
        del values["init"], values["adaptation"]
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def run_name(config: TrainConfig) -> str:
    """`<task>-<model>-<drafter>[-k<k>][-<init>[-online]]-<signature>`, safe as a file name."""
    drafter = config.drafter
    parts = [config.task.name, config.model.name, drafter.name]
    if drafter.name != "none":
        parts.append(f"k{drafter.k}")
    if drafter.learned:
        online = config.adaptation.name == "online"
        parts += [config.init.name, *(["online"] if online else [])]
    parts.append(signature(config))
    return re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts))


def run_folder(config: TrainConfig) -> Path:
    """Folder of the run's files; not created here."""
    return Path(config.output_dir).expanduser() / run_name(config)


def _drop(values: dict[str, Any], key: str) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        values = values[parent]
    del values[last]
