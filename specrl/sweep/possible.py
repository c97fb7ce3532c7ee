"""Whether a point can run at all, told before the first point of a sweep starts."""

import os

from specrl.config.cluster import SlurmConfig
from specrl.config.node_layout import check_machine, gpus_needed
from specrl.config.train import TrainConfig
from specrl.errors import UserError
from specrl.learner.layout import check_shape, shape_of
from specrl.models.peek import peek
from specrl.sweep.point import PointTask
from specrl.telemetry.source import GPUS


def check_possible(task: PointTask) -> None:
    """Raises `UserError`, which begins with the point's overrides, for one that cannot run.

    That is: a model that the learner cannot train, tensor parallelism that does not divide its
    heads, more GPUs than this machine has. A hub model whose config.json is not known here passes.
    What a config alone shows, the layout on a Slurm allocation too, `specrl.config.door` refuses.
    """
    try:
        _check_model(task.config)
        _check_gpus(task.config)
    except UserError as error:
        named = f"{' '.join(task.overrides)}: " if task.overrides else ""
        raise UserError(f"{named}{error}") from None


def _check_model(config: TrainConfig) -> None:
    ways = config.rollout.engine_args.get("tensor_parallel_size", 1)
    if not isinstance(ways, int) or ways < 1:
        raise UserError(
            f"rollout.engine_args.tensor_parallel_size={ways} is out of range; use a whole number "
            "of at least 1"
        )
    if config.model.source == "wheel" and config.learner.tensor_parallel == ways == 1:
        return  # its file takes seconds to read, and nothing is divided
    described = peek(config.model)
    if described is None:
        return
    shape = shape_of(described, f"model={config.model.name}")
    check_shape(shape, config.learner)
    if shape.heads % ways:
        raise UserError(
            f"rollout.engine_args.tensor_parallel_size={ways} does not divide the model's "
            f"{shape.heads} attention heads; use a divisor of {shape.heads}, or rollout.replicas"
        )


def _check_gpus(config: TrainConfig) -> None:
    """Of this machine; those of an allocation are `node_layout`'s to check."""
    if not isinstance(config.cluster, SlurmConfig):
        check_machine(gpus_needed(config), _gpus_here())


def _gpus_here() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip()])
    return len(list(GPUS.iterdir())) if GPUS.is_dir() else 0
