"""What stands for `specrl.build.run` in the processes of a sweep's points."""

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from specrl.config.train import TrainConfig
from specrl.errors import RunError
from specrl.interruption import interruption

STAGES = ("data", "prepare", "generation", "logprob", "training")
CALLS = "calls"  # of a run folder: a line for each start
GOOD = "good"  # of an output_dir: every seed finishes at once


def run(config: TrainConfig, folder: Path, overrides: Sequence[str]) -> None:
    """Does what the seed says the first time, and finishes when it is tried again.

    Seed 1 raises, 2 is killed, 3 leaves, 4 has a bug, 5 waits for a signal, 7 for two, 9 finds the
    disk full.
    """
    calls = folder / CALLS
    with calls.open("a") as file:
        file.write(f"{os.getpid()}\n")
    sys.stdout.write(f"this is seed {config.seed}\n")
    sys.stdout.flush()
    if len(calls.read_text().split()) == 1 and not (folder.parent / GOOD).exists():
        misbehave(config.seed, folder)
    write_steps(folder, config, overrides)


def misbehave(seed: int, folder: Path) -> None:
    match seed:
        case 1:
            raise RunError("engine-0 died")
        case 2:
            os.kill(os.getpid(), signal.SIGKILL)
        case 3:
            sys.exit(7)
        case 4:
            raise KeyError("oops")
        case 5:
            wait_for_signal()
        case 7:
            ignore_signals(folder / "asked")
        case 9:
            find_no_room(folder)


def find_no_room(folder: Path) -> None:
    """As on a full disk: submitit cannot save anything any more either."""
    shutil.rmtree(folder / "job")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "metrics.jsonl"))


def wait_for_signal() -> None:
    """As a run between two steps."""
    with interruption() as stop:
        while not stop.requested:
            time.sleep(0.05)
    raise KeyboardInterrupt


def ignore_signals(asked: Path) -> None:
    """As a run in a step that does not end: a second signal raises KeyboardInterrupt."""
    with interruption() as stop:
        while True:
            time.sleep(0.05)
            if stop.requested:
                asked.touch()


def write_steps(folder: Path, config: TrainConfig, overrides: Sequence[str]) -> None:
    from specrl.telemetry.jsonl import JsonlSink

    sink = JsonlSink(folder, config={}, overrides=overrides)
    sink.start()
    times = {f"time/{stage}_s": 1.0 for stage in STAGES}
    generation_s = 1.0 if config.drafter.name == "none" else 0.5
    for step in range(2):
        values = {"time/generation_s": generation_s, "time/step_s": 4.0 + generation_s}
        rewards = {"reward/mean": config.seed + step / 10, "rollout/tokens": 10.0}
        sink.log(step, {**times, **values, **rewards})
    sink.finish("finished")
