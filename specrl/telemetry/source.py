"""Which source code a run used, and which machine."""

import os
import platform
import re
import subprocess
from pathlib import Path

GIT_TIMEOUT_S = 5.0
CPU_INFO = Path("/proc/cpuinfo")
GPUS = Path("/proc/driver/nvidia/gpus")


def git_commit(folder: Path) -> str | None:
    """Commit of `folder`'s repository, with "-dirty" after local changes.

    None where there is no git, no repository, or one that does not track the folder (a virtual
    environment inside somebody's repository).
    """
    if not _git(folder, "ls-files", "--", "."):
        return None
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def machine(cpu_info: Path = CPU_INFO, gpus: Path = GPUS) -> str:
    """Model and usable number of CPUs and GPUs, e.g. "2 x AMD EPYC 9R14"; no host name."""
    parts = [f"{len(os.sched_getaffinity(0))} x {cpu_model(cpu_info)}"]
    names = [_first(path, r"^Model:\s*(.+)$") for path in sorted(gpus.glob("*/information"))]
    kinds = sorted({name for name in names if name})
    return ", ".join([*parts, *(f"{names.count(kind)} x {kind}" for kind in kinds)])


def cpu_model(cpu_info: Path = CPU_INFO) -> str:
    """The CPU's name, or only its architecture where Linux does not tell."""
    return _first(cpu_info, r"^model name\s*:\s*(.+)$") or platform.machine()


def _first(path: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else found[1].strip()


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
