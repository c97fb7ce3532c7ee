"""What Hydra hands to a launcher, as the points of a sweep."""

from collections.abc import Sequence
from dataclasses import replace

from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import TaskFunction
from omegaconf import DictConfig

from specrl.errors import UserError
from specrl.sweep.executor import Executor
from specrl.sweep.launch import launch
from specrl.sweep.points import as_written, checked_tasks


def launch_points(
    loader: ConfigLoader,
    config: DictConfig,
    task_function: TaskFunction,
    points: Sequence[Sequence[str]],
    executor: Executor,
) -> list[JobReturn]:
    """Runs the points with `task_function.run`. Raises as `specrl.sweep.launch.launch`."""
    tasks = checked_tasks(loader, config, [tuple(words) for words in points])
    run = getattr(task_function, "run", None)
    typed = as_written(config.hydra.overrides.task)
    try:
        launch([replace(task, run=run) for task in tasks], executor, typed)
    except UserError:
        raise
    except (ValueError, AssertionError) as error:  # what the door takes for a mistake in a config
        raise RuntimeError(
            "a bug ended the sweep; its points go on with the same command"
        ) from error
    done = [JobReturn(overrides=words, status=JobStatus.COMPLETED) for words in points]
    for job in done:
        job.return_value = None
    return done
