"""Where the actors run."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from specrl.config.bounds import at_least, expandable, processes
from specrl.errors import UserError

OWN_OPTIONS = ("nodes", "ntasks", "ntasks-per-node", "gpus-per-node", "signal", "output", "error")
SIGNAL_MARGIN_S = 60  # sbatch's --signal may be sent that much earlier
SHORTEST_SIGNAL_DELAY_S = 20  # a checkpoint of the smallest model, and the requeue


@dataclass(kw_only=True)
class ClusterConfig:
    """Ray on this machine."""

    name: str = MISSING
    """Name of the cluster."""

    hardware: str = MISSING
    """Label of what the run's times are measured on (cpu, h100, ...); part of its identity."""

    gpus_per_engine: int = 0
    """GPUs of one engine replica; 0 runs it on the CPU."""

    gpus_per_learner_rank: int = 0
    """GPUs of one learner rank; 0 runs it on the CPU."""

    temp_dir: str | None = None
    """Ray's temporary folder (a short path); null lets Ray choose."""

    def __post_init__(self) -> None:
        at_least("cluster.gpus_per_engine", self.gpus_per_engine, 0)
        at_least("cluster.gpus_per_learner_rank", self.gpus_per_learner_rank, 0)
        expandable("cluster.temp_dir", self.temp_dir)


@dataclass(kw_only=True)
class SlurmConfig(ClusterConfig):
    """Ray inside a Slurm allocation, one task per node; `hydra/launcher=specrl_slurm` submits it.

    `output_dir` and `model.cache_dir` must be folders that every node sees.
    """

    nodes: int = 1
    """Nodes of one run."""

    gpus_per_node: int = 0
    """GPUs asked for on each node."""

    cpus_per_node: int = 0
    """CPU cores asked for on each node; 0 leaves it to Slurm."""

    partition: str | None = None
    """Slurm partition; null takes the cluster's default."""

    account: str | None = None
    """Slurm account."""

    qos: str | None = None
    """Slurm quality of service."""

    time_limit_min: int = 240
    """Minutes after which Slurm ends a job; the run saves before, and goes on in the queue."""

    signal_delay_s: int = 180
    """Seconds before the limit at which a job is told; longer than a step and a checkpoint."""

    max_requeues: int = 100
    """How often one job may go back to the queue."""

    join_deadline_s: int = 600
    """Seconds that every node has to join Ray."""

    sbatch: list[str] = field(default_factory=list)
    """More sbatch options, one an item: --exclusive, --mem=0, --reservation=mine."""

    setup: list[str] = field(default_factory=list)
    """Shell commands of the batch script, before the run: module load cuda, export A=1."""

    container_image: str | None = None
    """Image that the tasks run in (pyxis, srun --container-image); null: the node itself."""

    container_mounts: list[str] = field(default_factory=list)
    """Mounts of the container, each /outside:/inside; run, cache and job folders must be in."""

    python: str | None = None
    """Python of the tasks, a path in the container; null: the one that submits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        processes("cluster.nodes", self.nodes)
        at_least("cluster.gpus_per_node", self.gpus_per_node, 0)
        at_least("cluster.cpus_per_node", self.cpus_per_node, 0)
        at_least("cluster.time_limit_min", self.time_limit_min, 1)
        at_least("cluster.signal_delay_s", self.signal_delay_s, SHORTEST_SIGNAL_DELAY_S)
        if self.signal_delay_s + SIGNAL_MARGIN_S >= 60 * self.time_limit_min:
            raise UserError(
                f"cluster.signal_delay_s={self.signal_delay_s} leaves a job of "
                f"cluster.time_limit_min={self.time_limit_min} no time to run (Slurm may tell it "
                "a minute early); lower the first or raise the second"
            )
        at_least("cluster.max_requeues", self.max_requeues, 0)
        at_least("cluster.join_deadline_s", self.join_deadline_s, 1)
        for line in self.sbatch:
            _check_option(line)
        if self.container_mounts and self.container_image is None:
            raise UserError(
                f"cluster.container_mounts={self.container_mounts} need a container; set "
                "cluster.container_image"
            )


def outside_of_job(cluster: SlurmConfig) -> UserError:
    """What a run on a Slurm cluster is refused with where no Slurm job runs it."""
    return UserError(
        f"cluster={cluster.name} lives in a Slurm job; add hydra/launcher=specrl_slurm and -m, "
        "or use cluster=local or local_gpu"
    )


def _check_option(line: str) -> None:
    name = line.removeprefix("--").partition("=")[0].strip()
    if not line.startswith("--") or not name:
        raise UserError(
            f"cluster.sbatch: {line!r} is no sbatch option; write --<name> or --<name>=<value>"
        )
    if name in OWN_OPTIONS:
        raise UserError(
            f"cluster.sbatch: {line} is what specrl sets itself; use cluster.nodes, "
            "cluster.gpus_per_node or cluster.signal_delay_s"
        )
