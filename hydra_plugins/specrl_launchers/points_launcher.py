"""What both launchers do: hand the points of a sweep to an executor."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:  # Hydra imports its plugins for every command, tab completion too
    from specrl.sweep.executor import Executor


class PointsLauncher(Launcher):
    """Raises `RunError` when a point did not finish, KeyboardInterrupt when interrupted."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context = hydra_context
        self._task = task_function
        self._config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        del initial_job_idx
        from specrl.sweep.hydra_points import launch_points

        loader = self._context.config_loader
        return launch_points(loader, self._config, self._task, job_overrides, self.executor())

    @abstractmethod
    def executor(self) -> "Executor":
        """Where the points run."""
