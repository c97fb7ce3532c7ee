"""Actors as Ray processes, wherever their Ray runs."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from specrl.cluster.death import cause_of, first_line, output_since
from specrl.errors import ActorDied, RunError
from specrl.process import oom_kills
from specrl.types import Placement

EXIT_S = 5.0  # how long processes may take to end by themselves
NO_USAGE_STATS = {"RAY_USAGE_STATS_ENABLED": "0"}
DEFAULTS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray would start actors at niceness 15, and times would depend on what else is running.
    "RAY_worker_niceness": "0",
}
OBJECT_STORE_BYTES = 256 * 1024 * 1024


def ray_environment() -> dict[str, str]:
    """What Ray's processes must find in their environment; the user's own values of some win."""
    return {**DEFAULTS, **os.environ, **NO_USAGE_STATS}


@contextmanager
def keeping_sigterm() -> Iterator[None]:
    """Round `ray.init`, which takes SIGTERM, also below Python; a handler of ours stays."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


class RayActors:
    """`Cluster` over a Ray that this process is connected to.

    Every actor writes its output to `<log_dir>/<name>.log`.
    """

    def __init__(self, ray: Any, log_dir: Path) -> None:
        self._ray = ray
        # Ray prints a line for every process that is gone, those killed here too; a death that
        # matters is `ActorDied`.
        ray._private.worker._worker_logs_enabled = False
        self._log_dir = log_dir
        log_dir.mkdir(parents=True, exist_ok=True)
        self._actors: list[RayActor] = []

    def spawn(self, name: str, target: str, placement: Placement, *args: Any) -> "RayActor":
        log = self._log_dir / f"{name}.log"
        hidden = {} if placement.num_gpus else {"CUDA_VISIBLE_DEVICES": ""}
        options = {
            "num_cpus": 0,
            "num_gpus": placement.num_gpus,
            "resources": dict(self.node_resources(placement.node)),
            "max_restarts": 0,
            "runtime_env": {"env_vars": {**hidden, **placement.env}},
        }
        remote = self._ray.remote(_Host).options(**options)
        log_start = log.stat().st_size if log.exists() else 0
        handle = remote.remote(target, args, placement.cores, str(log))
        actor = RayActor(self._ray, name, handle, log, log_start)
        self._actors.append(actor)
        return actor

    def cores(self, node: int) -> list[int]:
        """CPU ids that processes of the node may use."""
        del node
        return sorted(os.sched_getaffinity(0))

    def node_resources(self, node: int) -> Mapping[str, float]:
        """What an actor asks for to land on the node."""
        del node
        return {}

    def close(self) -> None:
        if self._actors:
            goodbyes = [actor.ask_to_exit() for actor in self._actors]
            self._ray.wait(goodbyes, num_returns=len(goodbyes), timeout=EXIT_S)
        for actor in self._actors:
            actor.kill()
        self._actors.clear()
        self._ray.shutdown()


class RayActor:
    """Implements `Actor`. `log` is its own from byte `log_start` on."""

    def __init__(self, ray: Any, name: str, handle: Any, log: Path, log_start: int) -> None:
        self._ray = ray
        self._handle = handle
        self._log_start = log_start
        self._oom_kills = oom_kills()
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
            output = output_since(self.log, self._log_start)
            cause = cause_of(error, output, oom_kills() > self._oom_kills)
            raise ActorDied(
                f"{self.name} died: {cause}; the same command goes on from the last checkpoint; "
                f"its log is {self.log}"
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
    return RunError(f"{name} failed: {first_line(error)}")
