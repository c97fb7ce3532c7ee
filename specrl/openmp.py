"""OpenMP threads of engine and learner on a CPU: fast while they work, asleep while they wait."""

import sys
from pathlib import Path


def openmp_environment(threads: int | None = None) -> dict[str, str]:
    """Environment of a process with `threads` OpenMP threads (None: the runtime's own choice).

    Intel's runtime is preloaded where the environment has it. It spins 1 ms after a parallel
    region, which bridges the gaps within a step; GNU's knows no such bound, so its threads sleep at
    once. Either way a waiting process leaves its cores to the other one.
    """
    env = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    intel = intel_openmp()
    if intel is None:
        return env | {"OMP_WAIT_POLICY": "passive"}
    return env | {"LD_PRELOAD": str(intel), "KMP_BLOCKTIME": "1", "KMP_TPAUSE": "0"}


def intel_openmp() -> Path | None:
    """libiomp5.so of this Python environment."""
    return next((path for path in Path(sys.prefix, "lib").glob("libiomp5.so")), None)
