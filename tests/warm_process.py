"""Processes forked from one that has imported what they need: each starts seconds sooner.

Run as a script it is that process, which imports and forks and does nothing else: what it forks
differs from a fresh process by what importing does. vLLM forks its own engines like that.
"""

import gc
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import current_process
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any

from specrl.learner.layout import learner_env
from specrl.rollout.environment import engine_environment

ROOT = Path(__file__).parents[1]
VLLM = ("vllm", "vllm.v1.worker.cpu_worker")


@cache
def with_vllm() -> "WarmProcess":
    """Of engines on one thread."""
    env = engine_environment(cores=[]) | {"OMP_NUM_THREADS": "1"}
    return WarmProcess(["specrl.rollout.worker", *VLLM], env)


@cache
def with_megatron() -> "WarmProcess":
    """Of learner ranks on one thread."""
    return WarmProcess(["specrl.learner.rank", "specrl.drafter.training"], learner_env(1))


class WarmProcess:
    """Forks processes that have `modules` imported, under `env`. It ends with this process."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        self._control, theirs = Pipe()
        command = [sys.executable, "-m", "tests.warm_process", str(theirs.fileno()), *modules]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env},
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def fork(self, function: str, *args: Any) -> "Forked":
        """A process that calls `function` ("module:name") with a connection to this one first."""
        ours, theirs = Pipe()
        send_handle(self._control, theirs.fileno(), self._process.pid)
        theirs.close()
        pid = ours.recv()
        key = bytes(current_process().authkey)  # tensors are fetched with it
        ours.send((os.getcwd(), sys.path, key, function))
        ours.send(args)
        return Forked(ours, pid)


class Forked:
    """A forked process and the connection to it, which ends with it."""

    def __init__(self, connection: Connection, pid: int) -> None:
        self.connection = connection
        self._pid = os.pidfd_open(pid)

    def kill(self) -> None:
        """Returns when it is gone. Safe to call twice."""
        if self._pid < 0:
            return
        with suppress(ProcessLookupError):  # it may have ended by itself
            signal.pidfd_send_signal(self._pid, signal.SIGKILL)
        select.select([self._pid], [], [])
        os.close(self._pid)
        self._pid = -1


def main(control: Connection, modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)
    gc.freeze()
    while True:
        try:
            handle = recv_handle(control)
        except EOFError:
            return
        forget_ended()
        if os.fork() == 0:
            control.close()
            work(Connection(handle))
        os.close(handle)


def forget_ended() -> None:
    with suppress(ChildProcessError):  # there is none, ended or not
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def work(connection: Connection) -> None:
    """Does not return."""
    try:
        connection.send(os.getpid())
        folder, sys.path[:], current_process().authkey, function = connection.recv()
        os.chdir(folder)
        module, _, name = function.partition(":")
        getattr(import_module(module), name)(connection, *connection.recv())
    except EOFError:  # nobody asks it any more
        os._exit(0)
    except Exception:
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), sys.argv[2:])
