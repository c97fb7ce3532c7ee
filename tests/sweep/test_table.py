"""The table of a sweep's points: whole words at 80 columns, also in a log file."""

import io
from pathlib import Path

from rich.console import Console

from specrl.sweep.points import Point
from specrl.sweep.status import Status
from specrl.sweep.table import Row, complaints_of, table_of

LONG = Path("/a/rather/long/path/to/the/outputs/of/somebody/who/likes/long/names/arithmetic-1a2b")


def rows() -> list[Row]:
    shared = "experiment=rl_think_cpu"
    failed = Status("failed", "engine-0 died: " + "out of memory " * 9, seconds=7.25)
    back = Status("queued", "Slurm job 7 was told to end; it is back in the queue")
    finished = Status("finished", seconds=12345.6)
    return [
        Row(Point((shared, "drafter=none"), "none", LONG), finished, 1000, 12.345, 1.0, 1.0, 0.4),
        Row(Point((shared, "drafter=eagle3", "drafter.k=3"), "eagle3", LONG), failed, 3),
        Row(Point((shared, "drafter=ngram"), "ngram", LONG), back, 0),
    ]


def shown(**options: bool) -> list[str]:
    text = io.StringIO()
    Console(width=80, file=text).print(table_of(rows(), **options), soft_wrap=True)
    return text.getvalue().splitlines()


def test_figures_stand_under_their_headings_within_80_columns() -> None:
    lines = shown()
    assert lines[0] == "3 points: 1 finished, 1 failed, 1 queued"
    headings, figures = lines[1], lines[3]
    assert max(len(headings), len(figures)) <= 80
    cells = ["12345.6", "1000", "12.35", "1.00x", "1.00", "0.400", "-"]
    assert figures.split() == ["finished", *cells]
    ends = [headings.index(heading) + len(heading) for heading in ("steps", "alpha", "accuracy")]
    assert [figures[:end].split()[-1] for end in ends] == ["1000", "1.00", "-"]


def test_what_is_long_has_a_line_of_its_own_and_is_not_broken() -> None:
    lines = shown()
    assert lines[2] == "1. drafter=none"
    assert lines[4] == f"   {LONG}"
    assert lines[5] == "2. drafter=eagle3 drafter.k=3"
    assert lines[7].strip().startswith("engine-0 died: out of memory out of")
    assert lines[8] == f"   log {LONG / 'run.log'}"
    assert lines[11] == "   Slurm job 7 was told to end; it is back in the queue"


def test_why_a_point_failed_can_be_left_to_another_place_and_its_log_stays() -> None:
    said = "\n".join(shown(reasons=False))
    assert "engine-0 died" not in said
    assert f"   log {LONG / 'run.log'}" in said.splitlines()
    assert "it is back in the queue" in said
    (complaint,) = complaints_of(rows())
    assert complaint.startswith("2. drafter=eagle3 drafter.k=3: failed: engine-0 died: ")
    assert complaint.endswith(f"; log {LONG / 'run.log'}")
