"""hydra/launcher=specrl_local: the points of a sweep as processes of this machine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore

from hydra_plugins.specrl_launchers.points_launcher import PointsLauncher

if TYPE_CHECKING:  # submitit comes with it
    from specrl.sweep.executor import Executor


@dataclass
class LocalLauncherConfig:
    """How points run on this machine."""

    _target_: str = "hydra_plugins.specrl_launchers.local.LocalLauncher"

    jobs: int = 1
    """Points at once; above 1 they disturb each other's times."""


class LocalLauncher(PointsLauncher):
    """A process for each point, `jobs` at once."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def executor(self) -> "Executor":
        from specrl.sweep.local import LocalPoints

        return LocalPoints(self._jobs)


ConfigStore.instance().store(
    group="hydra/launcher", name="specrl_local", node=LocalLauncherConfig, provider="specrl"
)
