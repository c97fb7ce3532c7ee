"""The process environment of an engine: threads, allocator, logging."""

import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

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


def engine_environment(cores: Sequence[int], num_gpus: int = 0) -> dict[str, str]:
    """Environment variables of an engine actor; they must be set before its process starts.

    `cores` are the CPU ids the actor is bound to, empty = all. With `num_gpus` 0 the engine is a
    CPU engine: Intel OpenMP and tcmalloc are preloaded where the environment has them.
    """
    env = dict(REQUIRED)
    if num_gpus:
        return env
    env |= REQUIRED_ON_CPU
    env["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores)) if cores else "auto"
    if cores:
        env["OMP_NUM_THREADS"] = str(len(cores))
    libraries = [path for path in (_tcmalloc(), _intel_openmp()) if path is not None]
    if libraries:
        env["LD_PRELOAD"] = ":".join(map(str, libraries))
    return env | _passive_waiting(intel=_intel_openmp() is not None)


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


def _passive_waiting(intel: bool) -> dict[str, str]:
    """Engine threads sleep while the learner works instead of spinning on its cores.

    Intel's runtime spins 1 ms after a parallel region, which bridges the gaps within a step;
    GNU's knows no such bound, so its threads sleep at once.
    """
    if intel:
        return {"KMP_BLOCKTIME": "1", "KMP_TPAUSE": "0"}
    return {"OMP_WAIT_POLICY": "passive"}


def _intel_openmp() -> Path | None:
    return _first_file(Path(sys.prefix, "lib").glob("libiomp5.so"))


def _tcmalloc() -> Path | None:
    spec = find_spec("vllm")
    folders = [Path(sys.prefix, "lib")]
    if spec is not None and spec.origin is not None:
        folders.insert(0, Path(spec.origin).parent / "libs")
    return _first_file(path for folder in folders for path in folder.glob("libtcmalloc*.so*"))


def _first_file(paths: Iterable[Path]) -> Path | None:
    return next((path for path in sorted(paths) if path.is_file()), None)
