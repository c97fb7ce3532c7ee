"""Whole sweeps: points that fail, sweeps that are interrupted, launchers that die or meet."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from sweeping import (
    by_seed,
    figures,
    finish,
    has_started,
    pid_of,
    start,
    starts,
    states,
    swept,
    wait_until,
)
from toy_runs import GOOD

from specrl.cli.status import report
from specrl.interruption import SAME_KEY_PRESS_S
from specrl.sweep.status import read_status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A sweep with a good point, one that raises, is killed, leaves, has a bug, finds no room."""
    folder = tmp_path_factory.mktemp("broken")
    return folder, *swept(folder, "seed=1,2,3,4,9,0", "hydra.launcher.jobs=2")


def test_no_point_stops_the_others(broken: tuple[Path, int, str]) -> None:
    folder, code, said = broken
    assert code == 1, said
    assert states(folder) == {0: "finished", **dict.fromkeys((1, 2, 3, 4, 9), "failed")}


def test_each_failure_has_its_reason_and_its_log(broken: tuple[Path, int, str]) -> None:
    folder, _, said = broken
    runs = by_seed(folder)
    reasons = {
        1: "engine-0 died",
        2: "killed by signal 9 (SIGKILL)",
        3: "the run left with exit code 7",
        4: "KeyError: 'oops'",
        9: f"nothing can be written to {runs[9] / 'metrics.jsonl'}: No space left on device; "
        "make room there, then the same command goes on",
    }
    lines = [line for line in said.splitlines() if line.startswith("specrl: ")]
    for (seed, reason), line in zip(reasons.items(), lines, strict=False):
        status = read_status(runs[seed])
        assert status is not None
        assert status.reason == reason
        assert f"failed: {reason}; log {runs[seed] / 'console.log'}" in line
        assert (runs[seed] / "console.log").read_text()
    assert lines[-1] == "specrl: 5 of 6 points did not finish; the same command goes on"


def test_a_full_disk_is_one_line_in_the_log_too(broken: tuple[Path, int, str]) -> None:
    folder, _, _ = broken
    said = (by_seed(folder)[9] / "console.log").read_text().splitlines()
    own = [line for line in said if not line.startswith("submitit INFO")]
    assert [line.split(" /")[0] for line in own] == [
        "this is seed 9",
        "specrl: nothing can be written to",
    ]


def test_the_output_of_the_points_is_shown_as_it_comes(broken: tuple[Path, int, str]) -> None:
    _, _, said = broken
    assert "[6/6] this is seed 0" in said
    assert "submitit" not in said


def test_a_rerun_skips_what_is_finished_and_tries_the_rest_again(
    broken: tuple[Path, int, str],
) -> None:
    folder, _, _ = broken
    code, said = swept(folder, "seed=1,2,3,4,9,0", "hydra.launcher.jobs=2")
    assert code == 0, said
    assert "6 points: 6 finished" in said
    assert starts(folder) == {0: 1, **dict.fromkeys((1, 2, 3, 4, 9), 2)}
    status = read_status(by_seed(folder)[2])
    assert status is not None
    assert status.attempt == 2


def test_rerun_true_runs_finished_points_again(tmp_path: Path) -> None:
    assert swept(tmp_path, "seed=0")[0] == 0
    assert swept(tmp_path, "seed=0")[0] == 0
    assert starts(tmp_path) == {0: 1}
    assert swept(tmp_path, "seed=0", "rerun=true")[0] == 0
    assert starts(tmp_path) == {0: 2}


def test_more_steps_are_more_to_do(tmp_path: Path) -> None:
    assert swept(tmp_path, "seed=0", "steps=2")[0] == 0
    assert swept(tmp_path, "seed=0", "steps=3")[0] == 0
    assert swept(tmp_path, "seed=0", "steps=1")[0] == 0
    assert starts(tmp_path) == {0: 2}


def test_points_with_one_folder_run_once(tmp_path: Path) -> None:
    code, said = swept(tmp_path, "seed=0", "drafter.k=3,5")
    assert code == 0, said
    assert "1 point: 1 finished" in said
    assert starts(tmp_path) == {0: 1}


def test_ctrl_c_leaves_a_sweep_that_continues_to_the_same_table(tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    process = start(broken, "seed=0,5,6")
    wait_until(lambda: has_started(broken, 5))
    process.send_signal(signal.SIGINT)
    code, said = finish(process)
    assert code == 130, said
    assert states(broken) == {0: "finished", 5: "interrupted", 6: "queued"}
    assert "2 of 3 points are left; the same command goes on" in said
    assert swept(broken, "seed=0,5,6")[0] == 0
    assert starts(broken) == {0: 1, 5: 2, 6: 1}

    whole.mkdir()
    (whole / GOOD).touch()
    assert swept(whole, "seed=0,5,6")[0] == 0
    assert starts(whole) == {0: 1, 5: 1, 6: 1}
    mine = [row | {"overrides": row["overrides"][:-1]} for row in figures(broken)]
    assert mine == [row | {"overrides": row["overrides"][:-1]} for row in figures(whole)]
    assert [row["reward"] for row in mine] == [0.1, 5.1, 6.1]


def test_the_same_sweep_started_twice_at_once_runs_no_point_twice(tmp_path: Path) -> None:
    (tmp_path / GOOD).touch()
    both = [start(tmp_path, "seed=0,1,2,3") for _ in range(2)]
    for process in both:
        code, said = finish(process)
        assert code == 0, said
        assert "4 points: 4 finished" in said
    assert starts(tmp_path) == dict.fromkeys(range(4), 1)


def test_a_killed_launcher_s_point_saves_and_another_launcher_takes_over(tmp_path: Path) -> None:
    first = start(tmp_path, "seed=5,0")
    wait_until(lambda: has_started(tmp_path, 5))
    point = psutil.Process(pid_of(tmp_path, 5))
    second = start(tmp_path, "seed=5,0")
    assert second.stdout is not None
    wait_until(lambda: f"process {point.pid} on" in second.stdout.readline())
    first.kill()
    first.wait()
    code, said = finish(second)
    assert code == 0, said
    assert said.count("left behind by its launcher") == 2
    assert starts(tmp_path) == {5: 2, 0: 1}
    assert not point.is_running()


def test_a_second_ctrl_c_ends_the_points_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, "seed=7,8")
    wait_until(lambda: has_started(tmp_path, 7))
    point = psutil.Process(pid_of(tmp_path, 7))
    process.send_signal(signal.SIGINT)
    wait_until(lambda: (by_seed(tmp_path)[7] / "asked").exists())
    time.sleep(2 * SAME_KEY_PRESS_S)
    process.send_signal(signal.SIGINT)
    code, said = finish(process)
    assert code == 130, said
    assert not point.is_running()
    assert states(tmp_path)[8] == "queued"


def test_the_state_is_told_at_any_time_also_after_a_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start(tmp_path, "seed=5,0")
    wait_until(lambda: has_started(tmp_path, 5))
    assert report([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 points: 1 running, 1 queued" in said
    assert "nobody runs" not in said
    os.killpg(process.pid, signal.SIGKILL)
    os.kill(pid_of(tmp_path, 5), signal.SIGKILL)
    process.wait()
    wait_until(lambda: not psutil.pid_exists(pid_of(tmp_path, 5)))
    assert report([str(tmp_path), "--json"]) == 0
    (sweep,) = json.loads(capsys.readouterr().out)
    assert [point["state"] for point in sweep["points"]] == ["failed", "queued"]
    assert "is gone without a word" in sweep["points"][0]["reason"]
    assert sweep["command"].startswith("specrl -m seed=5,0 ")
    assert report([str(tmp_path)]) == 0
    assert "nobody runs the 2 that are left" in capsys.readouterr().out
