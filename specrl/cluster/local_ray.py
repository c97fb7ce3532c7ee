"""Ray on this machine: every actor is a process of its own, from a laptop up."""

import logging
import os
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from specrl.errors import ActorDied, RunError, UserError
from specrl.types import Placement

EXIT_S = 5.0  # how long processes may take to end by themselves
_OBJECT_STORE_BYTES = 256 * 1024 * 1024


class LocalRay:
    """Implements `Cluster`. Every actor writes its output to `<log_dir>/<name>.log`."""

    def __init__(self, log_dir: Path, temp_dir: str | None = None, num_gpus: int = 0) -> None:
        """`num_gpus` is what all actors together will ask for.

        Raises `UserError` when this machine has fewer, `RunError` when Ray does not start.
        """
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Ray would start actors at niceness 15, and times would depend on what else is running.
        os.environ.setdefault("RAY_worker_niceness", "0")
        self._ray = _started_ray(temp_dir)
        found = int(self._ray.cluster_resources().get("GPU", 0))
        if found < num_gpus:
            self._ray.shutdown()
            raise UserError(
                f"engines and learner need {num_gpus} GPUs and this machine has {found}; lower "
                "rollout.replicas, learner.tensor_parallel or learner.data_parallel"
            )
        self._log_dir = log_dir
        log_dir.mkdir(parents=True, exist_ok=True)
        self._actors: list[RayActor] = []

    def spawn(self, name: str, target: str, placement: Placement, *args: Any) -> "RayActor":
        log = self._log_dir / f"{name}.log"
        hidden = {} if placement.num_gpus else {"CUDA_VISIBLE_DEVICES": ""}
        options = {
            "num_cpus": 0,
            "num_gpus": placement.num_gpus,
            "max_restarts": 0,
            "runtime_env": {"env_vars": {**hidden, **placement.env}},
        }
        remote = self._ray.remote(_Host).options(**options)
        handle = remote.remote(target, args, placement.cores, str(log))
        actor = RayActor(self._ray, name, handle, log)
        self._actors.append(actor)
        return actor

    def close(self) -> None:
        if self._actors:
            goodbyes = [actor.ask_to_exit() for actor in self._actors]
            self._ray.wait(goodbyes, num_returns=len(goodbyes), timeout=EXIT_S)
        for actor in self._actors:
            actor.kill()
        self._actors.clear()
        self._ray.shutdown()


class RayActor:
    """Implements `Actor`."""

    def __init__(self, ray: Any, name: str, handle: Any, log: Path) -> None:
        self._ray = ray
        self._handle = handle
        self.name = name
        self.log = log

    def submit(self, method: str, *args: Any, **kwargs: Any) -> "RayFuture":
        return RayFuture(self, self._handle.call.remote(method, args, kwargs))

    def kill(self) -> None:
        self._ray.kill(self._handle, no_restart=True)

    def ask_to_exit(self) -> Any:
        """Lets the process end by itself, which removes what its libraries left in shared memory.

        The reference returned is ready once it has.
        """
        return self._handle.__ray_terminate__.remote()

    def fetch(self, reference: Any) -> Any:
        """The value behind `reference`; the method's own error, or `ActorDied`."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise _original(error, self.name) from None
        except errors.RayError as error:
            raise ActorDied(
                f"{self.name} died: {_first_line(error)}; its log is {self.log}"
            ) from None


class RayFuture:
    """Implements `Future`."""

    def __init__(self, actor: RayActor, reference: Any) -> None:
        self._actor = actor
        self._reference = reference

    def result(self) -> Any:
        return self._actor.fetch(self._reference)


class _Host:
    """Lives in the actor's process: redirects its output, binds its cores, builds the object."""

    def __init__(
        self, target: str, args: tuple[Any, ...], cores: tuple[int, ...], log: str
    ) -> None:
        _redirect_output(log)
        module, _, attribute = target.partition(":")
        self._failure: Exception | None = None
        try:
            if cores:
                os.sched_setaffinity(0, cores)
            self._object = getattr(import_module(module), attribute)(*args)
        except Exception as failure:  # kept for the first call, which raises it as what it is
            traceback.print_exc()
            self._failure = failure

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            return getattr(self._object, method)(*args, **kwargs)
        except Exception:
            traceback.print_exc()  # the driver shows one line; the log has the rest
            raise


def _started_ray(temp_dir: str | None) -> Any:
    """Ray of this process alone, also where another Ray runs on the machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        try:
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=temp_dir,
            )
        except (ValueError, OSError, RuntimeError) as error:
            raise RunError(
                f"Ray does not start: {_first_line(error)}; "
                "if it is about a path or space, set cluster.temp_dir to a short path with room"
            ) from error
    return ray


def _redirect_output(log: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _original(error: Any, name: str) -> BaseException:
    cause = error.cause
    if isinstance(cause, Exception):
        return cause
    return RunError(f"{name} failed: {_first_line(error)}")


def _first_line(error: object) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
