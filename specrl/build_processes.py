"""The processes of a run: the engine's, the learner's, and the cluster they live in."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from specrl.cluster.local_ray import LocalRay
from specrl.cluster.slurm_ray import SlurmRay
from specrl.cluster.slurm_task import Allocation
from specrl.config.cluster import SlurmConfig, outside_of_job
from specrl.config.drafter import AUTO, Eagle3Config, NoDrafterConfig
from specrl.config.node_layout import gpus_needed, node_layout
from specrl.config.rollout import RolloutConfig
from specrl.config.train import TrainConfig
from specrl.drafter import Eagle3Drafter, NoDrafter
from specrl.learner.layout import rank_placements
from specrl.learner.megatron_learner import MegatronLearner
from specrl.protocols import Actor, Cluster, Drafter, DraftLearner, Learner, RolloutEngine
from specrl.rollout.auto_length import AutoLengthEngine
from specrl.rollout.environment import engine_environment, split_cores, usable_cores
from specrl.rollout.settings import EngineSettings, replica_settings
from specrl.rollout.step_costs import engine_step_costs
from specrl.rollout.vllm_engine import VllmEngine
from specrl.rollout.watched import WatchedEngine
from specrl.types import DraftSetup, Placement, Sampling


@dataclass(frozen=True)
class Replica:
    """One engine process and what it was started with."""

    actor: Actor
    settings: EngineSettings
    placement: Placement


@dataclass(frozen=True)
class DraftOutlook:
    """What is known of the draft before it drafts, and whom to tell about it.

    `fitted`: somebody trained it for this policy, so that it must be above the health gate's floor.
    `promised[i]` is the chance, estimated by its init, that draft tokens 0..i are all accepted;
    None without an estimate. `history` is position-0 acceptance of the run's steps before a resume.
    """

    note: Callable[[str], None]
    fitted: bool = False
    promised: Sequence[float] | None = None
    history: Sequence[float] = ()


def build_cluster(
    config: TrainConfig, run_folder: Path, engine: bool = True, learner: bool = True
) -> Cluster:
    """Ray with the GPUs that engine and learner need: this machine's, or the Slurm job's.

    Raises `UserError` when there are fewer, and for a Slurm cluster outside of its job.
    """
    cluster = config.cluster
    if isinstance(cluster, SlurmConfig):
        check_cluster(config)
        allocation = Allocation.here()
        assert allocation is not None
        return SlurmRay(run_folder / "logs", allocation)
    num_gpus = gpus_needed(config, engine, learner)
    return LocalRay(run_folder / "logs", cluster.temp_dir, num_gpus)


def check_cluster(config: TrainConfig) -> None:
    """Raises `UserError` for a Slurm cluster outside of its job, before anything is prepared."""
    if isinstance(config.cluster, SlurmConfig) and Allocation.here() is None:
        raise outside_of_job(config.cluster)


def build_engine_and_learner(
    config: TrainConfig,
    model: Path,
    drafter: Drafter,
    cluster: Cluster,
    stack: ExitStack,
    outlook: DraftOutlook,
) -> tuple[RolloutEngine, Learner]:
    """Both start at once, each in its own processes; `stack` closes the engine."""
    replicas = spawn_engines(config, model, drafter, cluster)
    learner = build_learner(config, model, cluster, drafter.draft_setup())
    engine = VllmEngine([replica.actor for replica in replicas], config.model.max_model_len)
    engine.wait_ready()
    stack.enter_context(closing(engine))
    return with_draft_control(engine, config, replicas, outlook), learner


def with_draft_control(
    engine: RolloutEngine,
    config: TrainConfig,
    replicas: Sequence[Replica],
    outlook: DraftOutlook,
) -> RolloutEngine:
    """The engine that chooses its draft length (`drafter.k=auto`) and watches a learned draft."""
    drafter, rollout = config.drafter, config.rollout
    if drafter.k == AUTO and drafter.name != "none":
        costs = engine_step_costs(
            Path(config.model.cache_dir),
            replicas[0].settings,
            replicas[0].placement,
            [replica.actor for replica in replicas],
            rollout.prompts_per_step * rollout.group_size,
            rollout.top_p,
            outlook.note,
            drafter.remeasure,
        )
        longest, promised = drafter.longest_k, outlook.promised
        engine = AutoLengthEngine(
            engine, costs, longest, outlook.note, promised, replicas=len(replicas)
        )
    if isinstance(drafter, Eagle3Config):
        least = drafter.health.floor if outlook.fitted else None
        expected = outlook.promised[0] if outlook.promised else least
        engine = WatchedEngine(
            engine, drafter.health, drafter.on_collapse, outlook.note, expected, outlook.history
        )
    return engine


def build_sampling(rollout: RolloutConfig) -> Sampling:
    """How the config draws responses."""
    return Sampling(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        max_tokens=rollout.max_tokens,
        stop_token_ids=tuple(rollout.stop_token_ids),
        stop=tuple(rollout.stop),
        ignore_eos=rollout.ignore_eos,
        seed=rollout.seed,
    )


def weight_bytes(model: Path) -> int:
    """Size of the model's weights on disk."""
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))


def spawn_engines(
    config: TrainConfig, model: Path, drafter: Drafter, cluster: Cluster
) -> list[Replica]:
    """One engine process per replica, starting in the background."""
    gpus = config.cluster.gpus_per_engine
    settings = replica_settings(
        model, config.model.max_model_len, config.rollout, drafter.speculative_config()
    )
    nodes = node_layout(config).engine
    shares = _core_shares(config, cluster, nodes)
    replicas = []
    for number, (own, node) in enumerate(zip(settings, nodes, strict=True)):
        share = shares[number]
        placement = Placement(share, gpus, engine_environment(share, gpus), node)
        actor = cluster.spawn(
            f"engine-{number}", "specrl.rollout.worker:EngineWorker", placement, own
        )
        replicas.append(Replica(actor, own, placement))
    return replicas


def _core_shares(
    config: TrainConfig, cluster: Cluster, nodes: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Cores of each replica, by its number: those on one node share what that node has."""
    shares: dict[int, tuple[int, ...]] = {}
    for node in sorted(set(nodes)):
        here = [number for number, place in enumerate(nodes) if place == node]
        usable = partial(cluster.cores, node)
        cores = usable_cores(config.rollout.cores, config.cluster.gpus_per_engine, usable)
        shares.update(zip(here, split_cores(cores, len(here)), strict=True))
    return shares


def spawn_mirrors(config: TrainConfig, cluster: Cluster) -> list[Actor]:
    """One on each node that has engines and not the rank that writes the weights."""
    others = sorted(set(node_layout(config).engine) - {0})
    return [
        cluster.spawn(f"weights-{node}", "specrl.weight_sync.mirror:Mirror", Placement(node=node))
        for node in others
    ]


def build_learner(
    config: TrainConfig, model: Path, cluster: Cluster, draft: DraftSetup | None = None
) -> MegatronLearner:
    """The learner over one process per rank; returns when the weights are loaded.

    `draft` is what it trains beside the policy.
    """
    placements = [
        replace(placement, node=node)
        for placement, node in zip(
            rank_placements(config.learner, config.cluster.gpus_per_learner_rank),
            node_layout(config).learner,
            strict=True,
        )
    ]
    actors = [
        cluster.spawn(
            f"learner-{rank}",
            "specrl.learner.rank:LearnerRank",
            placement,
            str(model),
            config.learner,
            config.algorithm,
            config.rollout.temperature,
            config.rollout.top_p,
            config.rollout.dtype,
            config.seed,
            rank,
            len(placements),
            draft,
        )
        for rank, placement in enumerate(placements)
    ]
    return MegatronLearner(actors, config.learner, config.algorithm)


@contextmanager
def autoregressive_engine(config: TrainConfig, model: Path, work: Path) -> Iterator[RolloutEngine]:
    """An engine without a draft in a cluster of its own, no weights live; logs in `<work>/logs`."""
    with closing(build_cluster(config, work, learner=False)) as cluster:
        replicas = spawn_engines(config, model, NoDrafter(NoDrafterConfig()), cluster)
        actors = [replica.actor for replica in replicas]
        with closing(VllmEngine(actors, config.model.max_model_len)) as engine:
            engine.wait_ready()
            yield engine


@dataclass(frozen=True)
class DraftProcesses:
    """What building a draft needs, one after the other, each with a cluster of its own.

    Their logs go to `<work>/logs`.
    """

    config: TrainConfig
    model: Path

    @contextmanager
    def engine(self, work: Path) -> Iterator[RolloutEngine]:
        """Decodes autoregressively with the policy's own weights live."""
        from specrl.learner.folder_snapshot import folder_snapshot

        # The seed of the run is not in the draft's key: the responses must not depend on it.
        rollout = replace(self.config.rollout, seed=0)
        with autoregressive_engine(
            replace(self.config, rollout=rollout), self.model, work
        ) as engine:
            snapshot = folder_snapshot(self.model, self.config.rollout.dtype, work, version=0)
            engine.load_weights(snapshot)
            yield engine

    @contextmanager
    def learner(self, work: Path, fresh: Path) -> Iterator[DraftLearner]:
        """Holds the draft of the folder `fresh`."""
        drafter = self.config.drafter
        assert isinstance(drafter, Eagle3Config), drafter
        # No reference policy: nothing here needs its memory.
        plain = replace(self.config, algorithm=replace(self.config.algorithm, kl_coef=0.0))
        setup = Eagle3Drafter(drafter, fresh).draft_setup()
        with closing(build_cluster(self.config, work, engine=False)) as cluster:
            yield build_learner(plain, self.model, cluster, setup)
