"""`ray start` as a child that cannot outlive its parent."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from specrl.cluster.ray_actors import OBJECT_STORE_BYTES

START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
PR_SET_PDEATHSIG = 1
TO_THE_TASK = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
"""Slurm sends them to every process of a task; what they mean is the task's own to decide."""

ANY_PORT = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
"""Two Rays on one host must not want the same."""


class RayProcess:
    """Ray's processes of one node. Their output goes to `log`; `folder` is removed with them."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, log: Path, env: Mapping[str, str]
    ) -> None:
        assert threading.current_thread() is threading.main_thread()  # whose end is the parent's
        self.log = log
        self._folder = folder
        # What an earlier attempt of the same job was killed with.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        command = [
            *(sys.executable, "-c", START, "start", "--block", "--disable-usage-stats"),
            *(f"--temp-dir={folder}", f"--object-store-memory={OBJECT_STORE_BYTES}"),
            *(*ANY_PORT, *arguments),
        ]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                preexec_fn=bound_to_parent(),
            )

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """Ends it and, through the kernel, whatever it started; safe to call twice."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def bound_to_parent() -> Callable[[], None]:
    """For `preexec_fn`: the child gets SIGKILL when the thread that started it is gone.

    Until then it and its children do not see the signals of `TO_THE_TASK`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def in_the_child() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, TO_THE_TASK)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be said
            os._exit(1)

    return in_the_child
