"""A sweep's place in MLflow: named after what was typed, and none where there cannot be one."""

from dataclasses import replace
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.config.signature import run_folder, signature
from specrl.sweep.point import PointTask
from specrl.sweep.points import point_of
from specrl.sweep.record import opened
from specrl.sweep.status import Status
from specrl.sweep.table import Row
from specrl.sweep.tracking import below, end_parent, open_parent, sweep_name
from specrl.telemetry.mlflow_sweep import SweepPoint


class Parent:
    """Remembers how it ended."""

    id = "abc"

    def __init__(self) -> None:
        self.ended: list[tuple[list[SweepPoint], str]] = []

    def end(self, points, status) -> None:
        self.ended.append((list(points), status))


def task(*overrides: str) -> PointTask:
    config = load(overrides)
    return PointTask(config, run_folder(config), overrides)


def record(tasks: list[PointTask]):
    return opened([point_of(task) for task in tasks], ["seed=0,1"])


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["sweep=table4", "seed=0,1"], "table4, seed=0,1"),
        (["drafter=none,eagle3", "drafter.k=3,5", "steps=4"], "drafter=none,eagle3 drafter.k=3,5"),
        (["experiment=demo"], "experiment=demo"),
        ([], "sweep"),
    ],
)
def test_a_sweep_is_named_after_what_it_sweeps_over(overrides, name):
    assert sweep_name(overrides) == name


def test_points_are_told_their_parent_and_stay_the_same_runs():
    (told,) = below(Parent(), [task("drafter=none")])
    assert told.config.tracking.parent_run_id == "abc"
    assert signature(told.config) == signature(task("drafter=none").config)
    assert below(None, [task("drafter=none")]) == [task("drafter=none")]


@pytest.mark.parametrize("second", ["tracking=none", "tracking.uri=http://other:1"])
def test_points_that_go_to_different_places_have_no_parent(second, tmp_path):
    place = f"output_dir={tmp_path}"
    tasks = [task("seed=0", place), task("seed=1", second, place)]
    assert open_parent(tasks, record(tasks), pytest.fail) is None


def test_without_mlflow_there_is_no_parent(tmp_path):
    tasks = [task("tracking=none", f"output_dir={tmp_path}")]
    assert open_parent(tasks, record(tasks), pytest.fail) is None


@pytest.mark.parametrize(
    ("states", "interrupted", "status"),
    [
        (["finished", "finished"], False, "finished"),
        (["finished", "failed"], False, "failed: 1 of 2 points did not finish"),
        (["finished", "interrupted"], True, "interrupted"),
    ],
)
def test_a_sweep_ends_as_its_points_did(states, interrupted, status, tmp_path: Path):
    parent = Parent()
    point = replace(point_of(task("drafter=none")), folder=tmp_path)
    rows = [Row(point, Status(state), steps=0) for state in states]
    end_parent(parent, rows, interrupted, pytest.fail)
    ((points, said),) = parent.ended
    assert said == status
    assert [point.state for point in points] == states
    assert all(point.figures == {} for point in points)
