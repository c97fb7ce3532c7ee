"""A real sweep through the real launcher: one arm is killed, and the rerun makes up for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specrl.sweep.record import records_in
from specrl.sweep.status import read_status
from specrl.sweep.table import Row, rows_of
from specrl.telemetry.jsonl import STEP_MARK, read_run
from specrl.types import Metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CODE = "import sys; from specrl.cli.train import main; sys.exit(main())"
STEPS = 8
# fp32, and losses that depend on every earlier step although rewards are rare.
WORDS = [
    "debug=tiny",
    "rollout.dtype=float32",
    "learner.precision=fp32",
    "init=dapo",
    "rollout.max_tokens=32",
    "learner.learning_rate=1e-3",
    "learner.weight_decay=0.1",
    "algorithm.kl_coef=0.1",
    "evaluation.samples=4",
    "tracking=none",
    f"steps={STEPS}",
    "checkpoint.every=2",
]
SAME = ("rollout/length_mean", "spec/num_drafts", "spec/acceptance_length")
CLOSE = ("policy/loss", "policy/grad_norm", "policy/entropy")


def start(cache: Path, runs: Path, ks: str) -> subprocess.Popen[str]:
    """An arm for each k, which share a tiny model and a draft init, and one without a draft."""
    arms = ["-m", "drafter=eagle3,none", f"drafter.k={ks}", "hydra.launcher.jobs=2"]
    where = [f"model.cache_dir={cache}", f"output_dir={runs}"]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *arms, *WORDS, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def killed_after_a_checkpoint(runs: Path) -> bool:
    """Kills the first arm once it has saved and before it is done."""
    for record in records_in(runs):
        folder = record.points[0].folder
        status = read_status(folder)
        saved = list((folder / "checkpoints").glob("step-*"))
        if status is not None and status.process is not None and saved:
            assert status.state == "running", "it was over before it could be killed"
            os.kill(status.process.pid, signal.SIGKILL)
            return True
    return False


def rows(runs: Path) -> dict[str, Row]:
    """Of the only sweep, by name of the run folder."""
    (record,) = records_in(runs)
    return {row.point.folder.name: row for row in rows_of(record.points)}


def told(row: Row) -> tuple[object, ...]:
    """What the table says, times left out."""
    return row.status.state, row.steps, row.acceptance_length, row.reward, row.accuracy


def steps(row: Row) -> list[Metrics]:
    """Of the run: evaluations left out."""
    records = read_run(row.point.folder).records
    return [record.metrics for record in records if STEP_MARK in record.metrics]


def test_a_sweep_with_a_killed_arm_ends_and_its_rerun_makes_the_table_of_a_whole_one(
    tmp_path: Path,
) -> None:
    cache, broken, whole = (tmp_path / name for name in ("cache", "broken", "whole"))
    process = start(cache, broken, ks="1,2")
    while not killed_after_a_checkpoint(broken):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    said, _ = process.communicate()
    assert process.returncode == 1, said
    assert "3 points: 2 finished, 1 failed" in said
    assert "killed by signal 9 (SIGKILL)" in said
    assert said.count("building a draft: init=dapo") == 1
    assert "waiting for it" in said

    said = finish(start(cache, broken, ks="1,2"))
    assert said.count("done already") == 2
    assert "going on from" in said
    assert "Matched arms" in said
    mended = rows(broken)
    assert [row.status.attempt for row in mended.values()] == [2, 1, 1]
    assert all(row.generation_speedup for row in mended.values())

    finish(start(cache, whole, ks="1"))
    expected = rows(whole)
    assert len(expected) == 2
    for name, row in expected.items():
        assert told(mended[name]) == told(row)
        assert row.steps == STEPS
    killed, same = next(iter(mended.values())), next(iter(expected.values()))
    assert_same_steps(steps(killed), steps(same))


def assert_same_steps(got: list[Metrics], expected: list[Metrics]) -> None:
    """Beyond the table: every step, before the kill and after it, is as if there had been none."""
    for name in SAME:
        assert [step[name] for step in got] == [step[name] for step in expected], name
    for name in CLOSE:
        near = pytest.approx([step[name] for step in expected], abs=1e-5)
        assert [step[name] for step in got] == near, name
    assert len({round(step["policy/entropy"], 5) for step in expected}) == STEPS
