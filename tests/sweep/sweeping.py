"""Sweeps of toy runs through the real command, in processes of their own."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toy_runs import CALLS

from specrl.sweep.record import records_in
from specrl.sweep.status import read_status
from specrl.sweep.table import rows_of

HERE = Path(__file__).parent
CODE = f"""
import sys, cloudpickle
sys.path.insert(0, {str(HERE)!r})
import toy_runs
cloudpickle.register_pickle_by_value(toy_runs)
from specrl.cli.train import launch
sys.exit(launch(sys.argv[1:], toy_runs.run))
"""
DEADLINE_S = 300


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`specrl -m WORDS` over toy runs without a draft below `folder`."""
    fixed = ["drafter=none", "tracking=none", f"output_dir={folder}"]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, "-m", *words, *fixed],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and output."""
    said, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said


def swept(folder: Path, *words: str) -> tuple[int, str]:
    return finish(start(folder, *words))


def by_seed(folder: Path) -> dict[int, Path]:
    """Run folder of each seed of the only sweep below `folder`."""
    (record,) = records_in(folder)
    return {_seed(point.overrides): point.folder for point in record.points}


def states(folder: Path) -> dict[int, str]:
    found = {seed: read_status(run) for seed, run in by_seed(folder).items()}
    return {seed: status.state if status else "" for seed, status in found.items()}


def starts(folder: Path) -> dict[int, int]:
    """How often each seed's run was started."""
    return {seed: len(_calls(run)) for seed, run in by_seed(folder).items()}


def pid_of(folder: Path, seed: int) -> int:
    """Process of the seed's last start."""
    return int(_calls(by_seed(folder)[seed])[-1])


def has_started(folder: Path, seed: int) -> bool:
    return bool(records_in(folder)) and bool(_calls(by_seed(folder)[seed]))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def figures(folder: Path) -> list[dict[str, Any]]:
    """The table of the only sweep, less what differs from launch to launch."""
    (record,) = records_in(folder)
    changing = ("seconds", "attempt", "process", "folder", "log")
    rows = [row.as_json() for row in rows_of(record.points)]
    return [{k: v for k, v in row.items() if k not in changing} for row in rows]


def _seed(words: tuple[str, ...]) -> int:
    return next(int(word.removeprefix("seed=")) for word in words if word.startswith("seed="))


def _calls(run: Path) -> list[str]:
    calls = run / CALLS
    return calls.read_text().split() if calls.exists() else []
