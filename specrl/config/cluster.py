"""Where the actors run."""

from dataclasses import dataclass

from omegaconf import MISSING

from specrl.config.bounds import at_least


@dataclass(kw_only=True)
class ClusterConfig:
    """Ray on this machine."""

    name: str = MISSING
    """Name of the cluster."""

    gpus_per_engine: int = 0
    """GPUs of one engine replica; 0 runs it on the CPU."""

    gpus_per_learner_rank: int = 0
    """GPUs of one learner rank; 0 runs it on the CPU."""

    temp_dir: str | None = None
    """Ray's temporary folder (a short path); null lets Ray choose."""

    def __post_init__(self) -> None:
        at_least("cluster.gpus_per_engine", self.gpus_per_engine, 0)
        at_least("cluster.gpus_per_learner_rank", self.gpus_per_learner_rank, 0)
