"""The process environment of an engine: threads, allocator, logging."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from specrl.openmp import openmp_environment

REQUIRED = {
    # The engine lives in the actor's process: stepped by hand, no second process to lose.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # A stray plugin of the environment would break every start.
    "VLLM_PLUGINS": "",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # The n-gram proposer compiles a parallel loop; a pool of threads of its own would
    # oversubscribe the engine's cores for a few microseconds of work.
    "NUMBA_NUM_THREADS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

REQUIRED_ON_CPU = {
    # The sampling patches and their tests are for this runner.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}

GLIBC_KEEPS_MEMORY = {
    # Logits and their copies are tens of MB a step: by default glibc maps and unmaps each, and
    # the kernel clears every page again.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_ARENA_MAX": "1",
}


def engine_environment(cores: Sequence[int], num_gpus: int = 0) -> dict[str, str]:
    """Environment variables of an engine actor; they must be set before its process starts.

    `cores` are the CPU ids the actor is bound to, empty = all. With `num_gpus` 0 the engine is a
    CPU engine: Intel OpenMP and tcmalloc are preloaded where the environment has them, and without
    tcmalloc glibc is told to keep freed memory.
    """
    env = dict(REQUIRED)
    if num_gpus:
        return env
    env |= REQUIRED_ON_CPU
    env["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores)) if cores else "auto"
    env |= openmp_environment(len(cores) or None)
    tcmalloc = _tcmalloc()
    libraries = [] if tcmalloc is None else [str(tcmalloc)]
    if tcmalloc is None:
        env |= {name: os.environ.get(name, value) for name, value in GLIBC_KEEPS_MEMORY.items()}
    if "LD_PRELOAD" in env:
        libraries.append(env["LD_PRELOAD"])
    return env | ({"LD_PRELOAD": ":".join(libraries)} if libraries else {})


def usable_cores(
    cores: Sequence[int], num_gpus: int, usable: Callable[[], Sequence[int]]
) -> list[int]:
    """The cores asked for; on a CPU engine empty means all that are usable where it will run.

    They are named one by one: Ray starts an actor with one OpenMP thread unless told otherwise.
    """
    return list(cores or ([] if num_gpus else usable()))


def split_cores(cores: Sequence[int], replicas: int) -> list[tuple[int, ...]]:
    """The cores of each replica, in runs of equal length (the first ones get the remainder).

    With fewer cores than replicas every replica shares all of them.
    """
    if len(cores) < replicas:
        return [tuple(cores)] * replicas
    share, extra = divmod(len(cores), replicas)
    sizes = [share + (replica < extra) for replica in range(replicas)]
    starts = [sum(sizes[:replica]) for replica in range(replicas)]
    return [tuple(cores[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def _tcmalloc() -> Path | None:
    spec = find_spec("vllm")
    folders = [Path(sys.prefix, "lib")]
    if spec is not None and spec.origin is not None:
        folders.insert(0, Path(spec.origin).parent / "libs")
    return _first_file(path for folder in folders for path in folder.glob("libtcmalloc*.so*"))


def _first_file(paths: Iterable[Path]) -> Path | None:
    return next((path for path in sorted(paths) if path.is_file()), None)
