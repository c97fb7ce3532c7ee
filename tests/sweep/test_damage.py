"""Folders that a person, a full disk or an older version left: one line, never a traceback."""

import errno
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from specrl.cli.status import report
from specrl.config.compose import load
from specrl.errors import RunError, UserError
from specrl.sweep.executor import Job, JobEnd
from specrl.sweep.lifecycle import Sweep
from specrl.sweep.point import PointTask, recorded
from specrl.sweep.points import Point
from specrl.sweep.record import FOLDER, opened, read_record, records_in, save_record
from specrl.sweep.status import STATUS_FILE, Status, changing, read_status, write_status

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
    assert "2 points: 1 damaged, 1 queued" in said
    assert f"{tmp_path / 'run-0' / STATUS_FILE} is damaged (Not a directory); " in said
    assert "nobody runs the 2 that are left" in said


def test_what_is_damaged_is_told_and_never_shown_as_queued(tmp_path: Path, capsys: Output) -> None:
    record = saved(tmp_path)
    for name in ("run-0", "run-1", "alone"):
        (tmp_path / name).mkdir()
    write_status(tmp_path / "run-0", Status("finished", log="/runs/\udce9", reason="\udce9"))
    (tmp_path / "run-0" / "metrics.jsonl").mkdir()
    (tmp_path / "run-1" / STATUS_FILE).write_text("[]")
    (tmp_path / "alone" / STATUS_FILE).write_text("{}")
    record.with_name("other.json").write_text("[]")
    assert report([str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "1 point: 1 damaged" in said.out
    assert "2 points: 1 finished, 1 damaged" in said.out
    assert f"{tmp_path / 'run-1' / STATUS_FILE} is damaged (it is no JSON object); " in said.out
    assert said.err == (
        f"specrl-status: {record.with_name('other.json')} is damaged; remove it: that sweep's "
        "command writes it anew\n"
    )
    assert report([str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [point["state"] for point in shown[1]["points"]] == ["finished", "damaged"]


def test_a_place_that_is_not_there_is_one_line(tmp_path: Path, capsys: Output) -> None:
    assert report([str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err == (
        f"specrl-status: {tmp_path / 'gone'} does not exist; name the output_dir of a sweep or "
        "run\n"
    )


def test_a_damaged_status_is_written_anew_by_the_run(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).write_text("[]")
    with recorded(load(["drafter=none"]), tmp_path, []):
        (tmp_path / STATUS_FILE).write_text("{")
    status = read_status(tmp_path)
    assert status is not None
    assert (status.state, status.attempt) == ("finished", 1)


@dataclass
class Damaging:
    """A `Job`, and its `Executor`: it leaves `text` as the status, None removes that, and ends."""

    log: Path
    text: str | None
    id: None = None
    at_once: int = 1

    def submit(self, tasks: Sequence[PointTask]) -> list[Job]:
        return [self for _ in tasks]

    def poll(self) -> JobEnd | None:
        path = self.log.parent / STATUS_FILE
        path.unlink() if self.text is None else path.write_text(self.text)
        return JobEnd()

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def check(self, task: PointTask) -> None: ...

    def alive(self, status: Status) -> bool | None: ...


@pytest.mark.parametrize(
    ("text", "reason"), [("[]", "it is no JSON object"), (None, "its process ended without a word")]
)
def test_a_sweep_survives_what_becomes_of_a_status_and_says_it(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    (tmp_path / STATUS_FILE).write_text("{}")
    said: list[str] = []
    task = PointTask(load(["drafter=none"]), tmp_path, ("seed=1",))
    Sweep([task], Damaging(tmp_path / "log", text), said.append).run()
    assert f"{tmp_path / STATUS_FILE} is damaged (state=None is none of" in said[0]
    status = read_status(tmp_path)
    assert status is not None
    assert status.state == "failed"
    assert reason in status.reason


@pytest.mark.parametrize("place", ["a_file", "a_file/x"])
def test_a_run_folder_that_cannot_be_is_one_line_with_the_fix(tmp_path: Path, place: str) -> None:
    (tmp_path / "a_file").touch()
    with pytest.raises(UserError) as caught, recorded(load(["drafter=none"]), tmp_path / place, []):
        pass
    assert str(caught.value).startswith(f"output_dir: cannot write to {tmp_path / place} (")
    assert str(caught.value).endswith("; name a folder that you can write to: output_dir=...")
    with pytest.raises(UserError, match="name a folder that you can write to"):
        changing(tmp_path / place).__enter__()


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
