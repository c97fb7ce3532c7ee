"""What a command would do, in words; nothing is started and nothing is written."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from specrl.build_draft import init_settings
from specrl.config.cluster import SlurmConfig
from specrl.config.node_layout import gpus_needed, node_layout
from specrl.config.train import TrainConfig
from specrl.evaluate import EvaluationPlan
from specrl.learner.layout import shape_of
from specrl.sweep.claim import is_done
from specrl.sweep.point import PointTask
from specrl.sweep.points import check_here, counted, distinct, letter, point_of
from specrl.sweep.possible import check_points, described_model
from specrl.sweep.status import is_alive, read_status
from specrl.sweep.table import labels


def dry_run(tasks: Sequence[PointTask], where: str, slurm: bool, budget: str = "") -> list[str]:
    """Lines for people: what becomes of each point, what they share and take, the layouts.

    `where` says what runs them, `budget` what their sweep says that it costs. Raises `UserError`
    for the first point that a launch would refuse: as `check_points` does, and for a Slurm cluster
    without Slurm's launcher.
    """
    runs = distinct(tasks)
    for task in runs:
        if not slurm:
            check_here(task.config)
    check_points(runs)
    drafts = _drafts(runs)
    names = labels([point_of(task) for task in runs])
    states = [_becomes(task) for task in runs]
    done = sum(state == DONE for state in states)
    left = len(runs) - done
    lines = [f"dry run: {counted(len(runs))}, {done} done already, {left} to run {where}"]
    if len(tasks) > len(runs):
        lines.append(f"{len(tasks) - len(runs)} more are the same run as one of these")
    for name, state, task in zip(names, states, runs, strict=True):
        draft = drafts.get(task.folder)
        shared = f", draft {draft}" if draft else ""
        lines += [f"  {name}", f"      {state}{shared}; {task.folder}"]
    lines += [*_warm_starts(runs, names), *_told(runs, drafts, names)]
    unfinished = [task.config for task, state in zip(runs, states, strict=True) if state != DONE]
    lines += [_work(unfinished), *([budget] if budget else [])]
    for like, example in _layouts(runs, names).items():
        lines += ["", f"layout of {example[0]}", *(f"  {line}" for line in like)]
        lines += [f"  {line}" for line in _slurm(example[1], slurm)]
    return lines


DONE = "done already, skipped"


def _becomes(task: PointTask) -> str:
    """What a launch would do with the point now."""
    status = read_status(task.folder)
    if status is not None and is_done(task, status, since_s=float("inf")):
        return DONE
    if status is not None and is_alive(task.folder, status):
        return f"waits for {status.process}, which has it ({status.state})"
    saved = sorted((task.folder / "checkpoints").glob("step-*"))
    if task.config.rerun:
        return "starts again from step 0 (rerun=true)"
    if saved:
        return f"goes on from step {int(saved[-1].name.removeprefix('step-'))}"
    return "starts"


def _drafts(runs: Sequence[PointTask]) -> dict[Path, str]:
    """A letter for each draft init, by run folder of the points that start from it."""
    keys = {task.folder: _init_key(task.config) for task in runs if task.config.drafter.learned}
    letters = {key: letter(number) for number, key in enumerate(dict.fromkeys(keys.values()))}
    return {folder: letters[key] for folder, key in keys.items()}


def _init_key(config: TrainConfig) -> str:
    """Equal for two points only if their first draft weights are the same artifact."""
    files = {
        "policy": asdict(config.model),
        "prompts": [asdict(config.task), config.init.path, config.init.revision],
    }
    return json.dumps(init_settings(config) | files, sort_keys=True)


def _told(runs: Sequence[PointTask], drafts: dict[Path, str], names: Sequence[str]) -> list[str]:
    numbers = {task.folder: name.partition(".")[0] for task, name in zip(runs, names, strict=True)}
    lines = []
    for draft in dict.fromkeys(drafts.values()):
        users = [folder for folder, own in drafts.items() if own == draft]
        config = next(task.config for task in runs if task.folder == users[0])
        points = [numbers[folder] for folder in users]
        lines.append(
            f"draft {draft}: init={config.init.name}, {config.init.num_prompts} prompts, built "
            f"once for {_numbered(points)}, or found in {config.model.cache_dir}/drafts"
        )
    return lines


def _warm_starts(runs: Sequence[PointTask], names: Sequence[str]) -> list[str]:
    users: dict[str, list[str]] = {}
    for task, name in zip(runs, names, strict=True):
        model = task.config.model
        if model.warm_start is not None:
            line = (
                f"warm start: model={model.name}, {model.warm_start.examples} worked solutions, "
                f"made once for POINTS, or found in {model.cache_dir}"
            )
            users.setdefault(line, []).append(name.partition(".")[0])
    return [line.replace("POINTS", _numbered(points)) for line, points in users.items()]


def _work(configs: Sequence[TrainConfig]) -> str:
    steps = sum(config.steps for config in configs)
    tokens = sum(map(_most_tokens, configs))
    return f"to do: {steps} steps, at most {tokens:,} response tokens, evaluations in it"


def _most_tokens(config: TrainConfig) -> int:
    """Of a whole run, if every response is as long as it may be."""
    rollout, evaluation = config.rollout, EvaluationPlan(**asdict(config.evaluation))
    due = sum(evaluation.due(step, config.steps) for step in range(config.steps + 1))
    responses = config.steps * rollout.prompts_per_step * rollout.group_size
    return rollout.max_tokens * (responses + due * evaluation.num_prompts * evaluation.samples)


def _layouts(
    runs: Sequence[PointTask], names: Sequence[str]
) -> dict[tuple[str, ...], tuple[str, PointTask]]:
    """Each layout with the points that have it, and one of them."""
    found: dict[tuple[str, ...], list[tuple[str, PointTask]]] = {}
    for task, name in zip(runs, names, strict=True):
        found.setdefault(_layout(task.config), []).append((name.partition(".")[0], task))
    return {
        lines: (_numbered([number for number, _ in users]), users[0][1])
        for lines, users in found.items()
    }


def _layout(config: TrainConfig) -> tuple[str, ...]:
    learner, cluster = config.learner, config.cluster
    ways = config.rollout.engine_args.get("tensor_parallel_size", 1)
    described = described_model(config)
    if described is None:
        model = f"{config.model.path} is not here yet: its heads are checked when the run starts"
    else:
        shape = shape_of(described, config.model.name)
        model = f"{shape.layers} layers, {shape.heads} heads, {shape.kv_heads} key/value heads"
    return (
        f"model={config.model.name}: {model}",
        f"engine replicas: {config.rollout.replicas} x {ways} TP, "
        f"{_device(cluster.gpus_per_engine)} each",
        f"learner: {learner.tensor_parallel} TP x {learner.data_parallel} DP, "
        f"{_device(cluster.gpus_per_learner_rank)} a rank",
        f"cluster={cluster.name}: {gpus_needed(config)} GPUs used",
        *(() if isinstance(cluster, SlurmConfig) else node_layout(config).lines()),
    )


def _numbered(numbers: Sequence[str]) -> str:
    return f"point{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _device(gpus: int) -> str:
    if not gpus:
        return f"CPU ({len(os.sched_getaffinity(0))} cores here)"
    return f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _slurm(task: PointTask, slurm: bool) -> list[str]:
    """What Slurm would be given for a point."""
    if not slurm:
        return []
    from specrl.sweep.slurm import preview

    return preview(task)
