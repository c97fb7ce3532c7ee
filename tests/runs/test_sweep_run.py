"""A real sweep through the real launcher: matched arms, one of them killed and tried again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_draft_init_run import TINY

from specrl.sweep.record import records_in
from specrl.sweep.status import read_status
from specrl.sweep.table import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CODE = "import sys; from specrl.cli.train import main; sys.exit(main())"


def start(folder: Path) -> subprocess.Popen[str]:
    """Arms that share a tiny model; the learned ones a draft init too."""
    where = [f"model.cache_dir={folder / 'cache'}", f"output_dir={folder / 'runs'}"]
    arms = ["-m", "drafter=none,eagle3", "drafter.k=1,2", "hydra.launcher.jobs=2"]
    own = ("drafter=eagle3", "drafter.vocab_size=64")  # of one arm
    words = [word for word in TINY if word not in own]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *arms, *words, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def killed(folder: Path) -> int | None:
    """Kills the arm without a draft once it runs; its process number."""
    for record in records_in(folder / "runs"):
        status = read_status(record.points[0].folder)
        if status is not None and status.state == "running" and status.process is not None:
            os.kill(status.process.pid, signal.SIGKILL)
            return status.process.pid
    return None


def test_a_sweep_with_a_killed_arm_ends_and_its_rerun_completes_it(tmp_path: Path) -> None:
    process = start(tmp_path)
    while killed(tmp_path) is None:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    said, _ = process.communicate()
    assert process.returncode == 1, said
    assert "3 points: 2 finished, 1 failed" in said
    assert "killed by signal 9 (SIGKILL)" in said
    assert said.count("building a draft: init=dapo") == 1
    assert "waiting for it" in said

    process = start(tmp_path)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert said.count("done already") == 2
    assert "Matched arms" in said
    (record,) = records_in(tmp_path / "runs")
    rows = rows_of(record.points)
    assert [row.status.state for row in rows] == ["finished"] * 3
    assert [row.status.attempt for row in rows] == [2, 1, 1]
    assert all(row.generation_speedup for row in rows)
