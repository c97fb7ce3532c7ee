"""Which node of a Slurm allocation each process of a run lives on."""

from dataclasses import dataclass

from specrl.config.cluster import SlurmConfig
from specrl.config.train import TrainConfig
from specrl.errors import UserError


@dataclass(frozen=True)
class NodeLayout:
    """Node of each learner rank and of each engine replica, counted from 0.

    Learner ranks fill nodes from the first on. Engine replicas start on a node of their own where
    the rest of the allocation holds them, else where the learner left room.
    """

    nodes: int
    learner: tuple[int, ...]
    engine: tuple[int, ...]

    @property
    def idle_nodes(self) -> int:
        """Nodes without a process."""
        return self.nodes - len({*self.learner, *self.engine})

    def lines(self) -> list[str]:
        """One line a node, for people."""
        return [f"node {node}: {self._on(node)}" for node in range(self.nodes)]

    def _on(self, node: int) -> str:
        named = {"learner": self.learner, "engine": self.engine}
        here = [
            f"{name}-{number}"
            for name, nodes in named.items()
            for number, place in enumerate(nodes)
            if place == node
        ]
        return " ".join(here) or "idle"


def node_layout(config: TrainConfig) -> NodeLayout:
    """The layout of a run; one node where the cluster is this machine.

    Raises `UserError` when the allocation is too small, or one engine does not fit on a node.
    """
    ranks = config.learner.tensor_parallel * config.learner.data_parallel
    replicas = config.rollout.replicas
    cluster = config.cluster
    if not isinstance(cluster, SlurmConfig):
        return NodeLayout(1, (0,) * ranks, (0,) * replicas)
    if not cluster.gpus_per_engine:
        room = -(-(ranks + replicas) // cluster.nodes)
        return _filled(cluster.nodes, room, (ranks, 1), (replicas, 1))
    _check_gpus(cluster, gpus_needed(config))
    return _filled(
        cluster.nodes,
        cluster.gpus_per_node,
        (ranks, cluster.gpus_per_learner_rank),
        (replicas, cluster.gpus_per_engine),
    )


def gpus_needed(config: TrainConfig, engine: bool = True, learner: bool = True) -> int:
    """GPUs of the engine replicas and the learner ranks that are asked for."""
    ranks = config.learner.tensor_parallel * config.learner.data_parallel
    engines = config.rollout.replicas * config.cluster.gpus_per_engine * engine
    return engines + ranks * config.cluster.gpus_per_learner_rank * learner


def check_machine(needed: int, found: int) -> None:
    """Raises `UserError` when this machine has fewer GPUs than engines and learner need."""
    if found < needed:
        fewer = "lower rollout.replicas, learner.tensor_parallel or learner.data_parallel"
        fix = fewer if found else "use cluster=local, which runs on the CPU"
        raise UserError(
            f"engines and learner need {needed} GPUs and this machine has {found}; {fix}"
        )


def _check_gpus(cluster: SlurmConfig, needed: int) -> None:
    if cluster.gpus_per_engine > cluster.gpus_per_node:
        raise UserError(
            f"cluster.gpus_per_engine={cluster.gpus_per_engine} is more than a node has "
            f"(cluster.gpus_per_node={cluster.gpus_per_node}) and an engine lives on one node; "
            "lower the first or raise the second"
        )
    if needed > cluster.nodes * cluster.gpus_per_node:
        raise UserError(
            f"engines and learner need {needed} GPUs and the allocation has cluster.nodes="
            f"{cluster.nodes} x cluster.gpus_per_node={cluster.gpus_per_node}; raise "
            "cluster.nodes, or lower rollout.replicas, learner.tensor_parallel or "
            "learner.data_parallel"
        )


def _filled(nodes: int, room: int, learner: tuple[int, int], engine: tuple[int, int]) -> NodeLayout:
    """`learner` and `engine` are (processes, size of one); a node has `room`."""
    (ranks, rank_size), (replicas, engine_size) = learner, engine
    per_node = room // rank_size
    rank_nodes = tuple(rank // per_node for rank in range(ranks))
    learner_nodes = rank_nodes[-1] + 1
    engines_per_node = room // engine_size
    rest = nodes - learner_nodes
    last = room - (ranks - per_node * (learner_nodes - 1)) * rank_size
    beside = 0 if rest * engines_per_node >= replicas else last // engine_size
    engine_nodes = [learner_nodes - 1] * min(beside, replicas)
    engine_nodes += [
        learner_nodes + number // engines_per_node for number in range(replicas - len(engine_nodes))
    ]
    if engine_nodes[-1] >= nodes:
        raise UserError(
            f"{replicas} engines of {engine_size} do not fit beside {ranks} learner ranks of "
            f"{rank_size} on {nodes} nodes of {room} GPUs, as no engine may span two; "
            "raise cluster.nodes or lower rollout.replicas"
        )
    return NodeLayout(nodes, rank_nodes, tuple(engine_nodes))
