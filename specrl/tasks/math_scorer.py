"""math-verify in a process of its own, which is killed when an answer takes too long."""

import json
import os
import selectors
import subprocess
import sys
from types import TracebackType
from typing import IO

from specrl.errors import RunError

# Importing sympy and antlr on a cold, busy machine.
START_TIMEOUT_S = 300.0
WORKER = "specrl.tasks.math_worker"


class MathScorer:
    """Compares two LaTeX answers. The process starts with the first comparison, is killed with
    any that exceeds `timeout_s`, and starts again with the next one.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def is_right(self, reference: str, answer: str) -> bool:
        """True when math-verify finds the two equal; False also for too slow and for crashed.

        Raises `RunError` when the process cannot start at all.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        request = json.dumps({"reference": reference, "answer": answer}).encode() + b"\n"
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError:
            self.close()
            return False
        reply = _read_line(process.stdout, self._timeout_s)
        if reply not in {b"1\n", b"0\n"}:
            self.close()
        return reply == b"1\n"

    def close(self) -> None:
        """Kills the process; the next comparison starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> "MathScorer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(self._timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdout is not None
        if _read_line(self._process.stdout, START_TIMEOUT_S) != b"ready\n":
            self.close()
            raise RunError(
                f"the math-verify process does not start; `python -m {WORKER} 5` shows why"
            )
        return self._process


def _read_line(stream: IO[bytes], timeout_s: float) -> bytes:
    """The short line that arrives within `timeout_s`; empty when none does or the stream ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline() if selector.select(timeout_s) else b""
