"""Which process did something, and whether it still lives."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

PID_NAMESPACE = Path("/proc/self/ns/pid")
OOM_KILLS = Path("/proc/vmstat")
START_TOLERANCE_S = 2.0  # the clock of the start moves with adjustments of the machine's clock


@dataclass(frozen=True)
class ProcessId:
    """A process for good: its number alone would be given again. `started_s` is Unix time.

    `namespace` tells containers apart that share a host name and not their process numbers.
    """

    host: str
    pid: int
    started_s: float
    namespace: int = 0

    def alive(self) -> bool | None:
        """None on a machine, or in a container, that cannot see the process."""
        if (self.host, self.namespace) != (socket.gethostname(), _namespace()):
            return None
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started_s) < START_TOLERANCE_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessId:
    """The process that asks."""
    return process_id(os.getpid())


def process_id(pid: int) -> ProcessId:
    """A living process of this machine."""
    started_s = psutil.Process(pid).create_time()
    return ProcessId(socket.gethostname(), pid, started_s, _namespace())


def oom_kills() -> int:
    """Processes that this machine's kernel killed for memory since its start."""
    try:
        words = OOM_KILLS.read_text().split()
        return int(words[words.index("oom_kill") + 1])
    except (OSError, ValueError):  # not Linux, or an old kernel
        return 0


def _namespace() -> int:
    try:
        return PID_NAMESPACE.stat().st_ino
    except OSError:  # not Linux: no containers to tell apart
        return 0
