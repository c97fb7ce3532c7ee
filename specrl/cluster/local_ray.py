"""Ray on this machine: every actor is a process of its own, from a laptop up."""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

from specrl.cluster.death import first_line
from specrl.cluster.ray_actors import (
    OBJECT_STORE_BYTES,
    RayActors,
    keeping_sigterm,
    ray_environment,
)
from specrl.config.node_layout import check_machine
from specrl.errors import RunError, UserError


class LocalRay(RayActors):
    """Implements `Cluster`. Every actor writes its output to `<log_dir>/<name>.log`."""

    def __init__(self, log_dir: Path, temp_dir: str | None = None, num_gpus: int = 0) -> None:
        """`num_gpus` is what all actors together will ask for.

        Raises `UserError` when this machine has fewer, `RunError` when Ray does not start.
        """
        os.environ.update(ray_environment())
        ray = _started_ray(temp_dir)
        found = int(ray.cluster_resources().get("GPU", 0))
        try:
            check_machine(num_gpus, found)
        except UserError:
            ray.shutdown()
            raise
        super().__init__(ray, log_dir)


def _started_ray(temp_dir: str | None) -> Any:
    """Ray of this process alone, also where another Ray runs on the machine."""
    with warnings.catch_warnings(), keeping_sigterm():
        warnings.simplefilter("ignore")
        import ray

        try:
            ray.init(
                address="local",
                num_cpus=0,  # actors ask for none; Ray would start a spare worker for each
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,  # what Ray says of a failed start, we do
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(Path(temp_dir).expanduser().absolute()) if temp_dir else None,
            )
        except Exception as error:  # Ray raises a bare one when it does not start in time
            ray.shutdown()
            raise RunError(
                f"Ray does not start: {first_line(error)}; if it is about a path or space, set "
                "cluster.temp_dir to a short path with room; if about time, the machine is too "
                "busy: the same command goes on"
            ) from error
    return ray
