"""A disk that takes nothing any more cannot take the note of it: who reads says so."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from specrl.durable import is_full
from specrl.process import ProcessId
from specrl.sweep.status import Status, settled

GONE = ProcessId("elsewhere", 1, 0.0)
ROOM = {"f_bavail": 1000, "f_frsize": 4096, "f_files": 50, "f_favail": 5}


def disk(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**{**ROOM, **values}))


@pytest.mark.parametrize(
    ("values", "full"),
    [
        ({}, False),
        ({"f_bavail": 0}, True),
        ({"f_favail": 0}, True),
        ({"f_files": 0, "f_favail": 0}, False),
    ],
)
def test_no_bytes_and_no_names_left_are_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, values: dict[str, int], full: bool
) -> None:
    disk(monkeypatch, **values)
    assert is_full(tmp_path) == full


def test_of_a_point_whose_end_could_not_be_written_the_reader_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = Status("running", process=GONE, started_s=1.0)
    assert "gone without a word" in settled(tmp_path, running).reason
    disk(monkeypatch, f_bavail=0)
    assert settled(tmp_path, running).reason == (
        f"{GONE} is gone and the disk of {tmp_path} is full; make room there; the same command "
        "goes on"
    )
