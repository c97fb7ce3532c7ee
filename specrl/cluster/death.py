"""Why an actor's process ended, from what Ray, its log and the kernel tell of it."""

import re
from pathlib import Path

CRASH = re.compile(r"^\*\*\* (SIG[A-Z]+) received", re.MULTILINE)
EXIT_CODE = re.compile(r"exits with an exit code (\d+)\.?(?: The process receives a (SIG[A-Z]+))?")
NO_WORD = "connection error code 2"
"""Of Ray: the process closed its connection and said nothing, as none can after SIGKILL."""


def cause_of(error: object, output: str, out_of_memory: bool) -> str:
    """Exit code or signal, as far as somebody knows it, else the first line of `error`.

    `error` is Ray's, `output` what the process wrote, `out_of_memory` whether the kernel
    ended a process of this machine for memory while the actor ran.
    """
    said = str(error)
    if crash := CRASH.search(output):
        return f"it crashed with {crash[1]}"
    if left := EXIT_CODE.search(said):
        return f"it left with exit code {left[1]}" + (f" after {left[2]}" if left[2] else "")
    if NO_WORD in said and out_of_memory:
        return "killed by SIGKILL: out of memory"
    if NO_WORD in said:
        return "it ended without a word, as by SIGKILL: most likely for memory"
    return first_line(error)


def output_since(log: Path, start: int) -> str:
    """What the log has from byte `start` on; "" where it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def first_line(message: object) -> str:
    """The first line with something on it."""
    lines = (line for line in str(message).splitlines() if line.strip())
    return next(lines, type(message).__name__)
