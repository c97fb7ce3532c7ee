"""hydra/launcher=specrl_slurm: the points of a sweep as Slurm jobs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore

from hydra_plugins.specrl_launchers.points_launcher import PointsLauncher

if TYPE_CHECKING:  # submitit comes with it
    from specrl.sweep.executor import Executor


@dataclass
class SlurmLauncherConfig:
    """How points become Slurm jobs; nodes, limits and the rest are knobs of `cluster`."""

    _target_: str = "hydra_plugins.specrl_launchers.slurm.SlurmLauncher"

    poll_s: float = 10.0
    """Seconds between two questions to squeue."""


class SlurmLauncher(PointsLauncher):
    """A job for each point, all of them in the queue at once."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s

    def executor(self) -> "Executor":
        from specrl.sweep.slurm import SlurmPoints

        return SlurmPoints(self._poll_s)


ConfigStore.instance().store(
    group="hydra/launcher", name="specrl_slurm", node=SlurmLauncherConfig, provider="specrl"
)
