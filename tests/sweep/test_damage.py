"""Folders that a person, a full disk or an older version left: one line, never a traceback."""

import errno
import json
from pathlib import Path

import pytest

from specrl.cli.status import report
from specrl.config.compose import load
from specrl.errors import RunError
from specrl.sweep.point import recorded
from specrl.sweep.points import Point
from specrl.sweep.record import FOLDER, opened, read_record, records_in, save_record
from specrl.sweep.status import read_status

Output = pytest.CaptureFixture[str]


def saved(output_dir: Path) -> Path:
    points = [Point((f"seed={n}",), "none", output_dir / f"run-{n}") for n in (0, 1)]
    return save_record(opened(points, ["seed=0,1"]))


@pytest.mark.parametrize(
    "change",
    [{"points": []}, {"points": [1]}, {"launched_s": "b"}, {"overrides": 3}, {"odd": 1}],
)
def test_a_damaged_record_of_a_sweep_counts_as_none(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = saved(tmp_path)
    assert read_record(path) is not None
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert read_record(path) is None
    assert records_in(tmp_path) == []


@pytest.mark.parametrize("text", ["", "3", "null", "[1]", "[" * 100_000])
def test_what_is_no_record_counts_as_none(tmp_path: Path, text: str) -> None:
    path = saved(tmp_path)
    path.write_text(text)
    assert read_record(path) is None


def test_the_state_is_told_where_a_run_folder_is_a_file(tmp_path: Path, capsys: Output) -> None:
    saved(tmp_path)
    (tmp_path / "run-0").touch()
    assert report([str(tmp_path / FOLDER)]) == 0
    said = capsys.readouterr().out
    assert "2 points: 2 queued" in said
    assert "nobody runs the 2 that are left" in said


def test_a_full_disk_is_one_line_and_the_point_goes_on_later(tmp_path: Path) -> None:
    config = load(["drafter=none"])
    with pytest.raises(RunError) as caught, recorded(config, tmp_path, []):
        raise OSError(errno.ENOSPC, "No space left on device", "/runs/metrics.jsonl")
    assert str(caught.value) == (
        "nothing can be written to /runs/metrics.jsonl: No space left on device; make room there, "
        "then the same command goes on"
    )
    status = read_status(tmp_path)
    assert status is not None
    assert status.state == "failed"


@pytest.mark.parametrize(
    ("fault", "fix"), [(errno.EROFS, "make it writable"), (errno.EIO, "check that disk")]
)
def test_a_disk_that_is_not_full_needs_no_room(fault: int, fix: str, tmp_path: Path) -> None:
    config = load(["drafter=none"])
    with pytest.raises(RunError, match=f"; {fix}, then the same"), recorded(config, tmp_path, []):
        raise OSError(fault, "as the kernel says")


def test_other_errors_of_files_are_bugs_and_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), recorded(load(["drafter=none"]), tmp_path, []):
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")
