"""A sweep of 300 points whose launcher is killed outright, and the same command again."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from specrl.sweep.record import records_in
from specrl.sweep.table import rows_of

HERE = Path(__file__).parent
POINTS, AT_ONCE = 300, 12
DEADLINE_S = 900
STARTED, ENDED = "started", "ended"  # files of an output_dir: a line for each start and end
CODE = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from forked_points import launch_many
launch_many(sys.argv[1], {POINTS}, {AT_ONCE})
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CODE, str(folder)]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split() if path.exists() else []


def table(folder: Path) -> list[dict[str, Any]]:
    """What is known of every point, in the order of their seeds."""
    (record,) = records_in(folder)
    return [row.as_json() for row in rows_of(record.points)]


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S)
def test_a_killed_launcher_of_300_points_loses_none_and_runs_none_twice(tmp_path: Path) -> None:
    first = start(tmp_path)
    deadline_s = time.monotonic() + DEADLINE_S / 2
    while len(lines(tmp_path, ENDED)) < POINTS // 3:
        assert time.monotonic() < deadline_s, (tmp_path / "said").read_text()[-2000:]
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    done = [seed for seed, row in enumerate(table(tmp_path)) if row["state"] == "finished"]
    assert POINTS // 3 - AT_ONCE <= len(done) < POINTS - AT_ONCE

    assert start(tmp_path).wait() == 0, (tmp_path / "said").read_text()[-2000:]
    starts = Counter(int(seed) for seed in lines(tmp_path, STARTED))
    assert sorted(starts) == list(range(POINTS))
    assert {starts[seed] for seed in done} == {1}
    assert starts.total() <= POINTS + AT_ONCE  # those that the kill found in hand
    rows = table(tmp_path)
    assert len(rows) == POINTS
    assert {row["state"] for row in rows} == {"finished"}
    assert [row["reward"] for row in rows] == [seed + 0.1 for seed in range(POINTS)]
