"""What points do in the tests of Slurm, in place of training."""

import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from specrl.build_processes import build_cluster
from specrl.config.cluster import SlurmConfig
from specrl.config.train import TrainConfig
from specrl.durable import write_atomically
from specrl.errors import RunError
from specrl.interruption import interruption
from specrl.types import Placement

FOUND = "found.json"
GO = "go"


def finishes(_config: TrainConfig, folder: Path, _overrides: Sequence[str]) -> None:
    first_time(folder)


def raises_once(_config: TrainConfig, folder: Path, _overrides: Sequence[str]) -> None:
    if first_time(folder):
        raise RunError("the planned error")


def is_killed_once(_config: TrainConfig, folder: Path, _overrides: Sequence[str]) -> None:
    if first_time(folder):
        os.kill(os.getpid(), signal.SIGKILL)


def waits(_config: TrainConfig, folder: Path, _overrides: Sequence[str]) -> None:
    """Until the second time, or until it is told to stop."""
    if not first_time(folder):
        return
    wait_for_a_signal()


def wait_for_a_signal() -> None:
    with interruption() as stop:
        while not stop.requested:
            time.sleep(0.1)
    raise KeyboardInterrupt


def is_deaf_once(_config: TrainConfig, folder: Path, _overrides: Sequence[str]) -> None:
    """Waits until it is told to stop, and the first time until it is killed."""
    if first_time(folder):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    wait_for_a_signal()


def seed_0_waits(config: TrainConfig, folder: Path, overrides: Sequence[str]) -> None:
    (finishes if config.seed else waits)(config, folder, overrides)


def first_time(folder: Path) -> bool:
    """Counts the calls in the run folder."""
    with (folder / "calls").open("a+") as calls:
        calls.write("x")
        return calls.tell() == 1


class Whereabouts:
    """What an actor tells of itself."""

    def tell(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()


def on_every_node(config: TrainConfig, folder: Path, _overrides: Sequence[str]) -> None:
    """An actor on each node, asked again and again until it is told to stop."""
    import ray

    assert isinstance(config.cluster, SlurmConfig)
    with closing(build_cluster(config, folder)) as cluster, interruption() as stop:
        actors = [
            cluster.spawn(f"actor-{node}", "slurm_runs:Whereabouts", Placement(node=node))
            for node in range(config.cluster.nodes)
        ]
        told = [actor.submit("tell").result() for actor in actors]
        found = {"actors": told, "nodes": len(ray.nodes()), "driver": os.getpid()}
        write_atomically(folder / FOUND, json.dumps(found))
        while not stop.requested and not (folder / GO).exists():
            for actor in actors:
                actor.submit("tell").result()
            time.sleep(0.2)
        if stop.requested:
            raise KeyboardInterrupt
