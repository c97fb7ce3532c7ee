"""Ray over the nodes of a Slurm allocation, as the process that drives it sees it."""

import logging
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrl.cluster.death import first_line
from specrl.cluster.ray_actors import RayActors, keeping_sigterm
from specrl.cluster.slurm_task import Allocation
from specrl.errors import RunError

LOOK_S = 0.5
SHARE = 1e-3  # of a node's marker resource: thousands of actors may have one


def node_marker(rank: int) -> str:
    """Ray resource that only the node of this rank has."""
    return f"specrl_node_{rank}"


class SlurmRay(RayActors):
    """Implements `Cluster` on all nodes of the job; `Placement.node` says which."""

    def __init__(self, log_dir: Path, allocation: Allocation) -> None:
        """Waits for every node. Raises `RunError` naming those that did not join in time."""
        super().__init__(_connected(allocation), log_dir)
        self._await_nodes(allocation)

    def cores(self, node: int) -> list[int]:
        if node == 0:
            return super().cores(node)
        usable = self._ray.remote(_usable_cores).options(
            num_cpus=0, resources=dict(self.node_resources(node))
        )
        found: list[int] = self._ray.get(usable.remote())
        return found

    def node_resources(self, node: int) -> Mapping[str, float]:
        return {node_marker(node): SHARE}

    def _await_nodes(self, allocation: Allocation) -> None:
        end = time.monotonic() + allocation.deadline_s
        while missing := self._missing(allocation):
            if time.monotonic() >= end:
                self.close()
                raise RunError(
                    f"{', '.join(missing)} of {len(allocation.nodes)} nodes did not join Ray in "
                    f"{allocation.deadline_s:.0f} s; their logs are in {allocation.log_folder}, "
                    "and cluster.join_deadline_s gives them longer"
                )
            time.sleep(LOOK_S)

    def _missing(self, allocation: Allocation) -> list[str]:
        joined: set[str] = set()
        for node in self._ray.nodes():
            joined.update(node["Resources"] if node["Alive"] else ())
        return [
            f"{name} (rank {rank})"
            for rank, name in enumerate(allocation.nodes)
            if node_marker(rank) not in joined
        ]


def _usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _connected(allocation: Allocation) -> Any:
    """Ray's head answers at its port before it lets anybody join."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

    host = allocation.ray.rpartition(":")[0]
    end = time.monotonic() + allocation.deadline_s
    while True:
        try:
            with keeping_sigterm():
                ray.init(
                    address=allocation.ray,
                    _node_ip_address=host,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            return ray
        except (ValueError, OSError, RuntimeError) as error:
            ray.shutdown()
            if time.monotonic() >= end:
                raise RunError(
                    f"Ray at {allocation.ray} cannot be reached: {first_line(error)}; "
                    f"its logs are in {allocation.log_folder}"
                ) from error
        time.sleep(LOOK_S)
