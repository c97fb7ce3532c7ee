"""A sweep's parent run: never in the way of the sweep, and right in a real MLflow."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from specrl.config.tracking import MlflowConfig
from specrl.telemetry.jsonl import JsonlSink
from specrl.telemetry.mlflow_run import arm_label, override_tags
from specrl.telemetry.mlflow_sink import MlflowSink
from specrl.telemetry.mlflow_sweep import SweepPoint, end_sweep, note, open_sweep
from specrl.telemetry.recorder import Recorder
from specrl.telemetry.replay import replay

OVERRIDES = ["drafter=none,ngram", "drafter.k=3,5"]
FIGURES = {"generation_s": 2.0, "step_s": 3.0, "speedup_generation": 1.5, "c_k": 1.25}


class BrokenSweep:
    """Raises at its end."""

    id = "p"

    def end(self, *_):
        raise ConnectionError("server gone\nand more")


def test_a_sweep_goes_on_without_a_server():
    said: list[str] = []

    def refuse(*_: object) -> BrokenSweep:
        raise ConnectionError("no route\nand more")

    run = open_sweep(MlflowConfig(), "key", "name", OVERRIDES, warn=said.append, opened=refuse)
    assert run is None
    end_sweep(run, [], "finished", warn=said.append)
    assert len(said) == 1
    assert "(no route); the sweep goes on" in said[0]


def test_a_server_that_dies_before_the_end_costs_one_warning():
    said: list[str] = []
    end_sweep(BrokenSweep(), [], "finished", warn=said.append)
    assert len(said) == 1
    assert "(server gone)" in said[0]
    assert "give the same command again" in said[0]


def test_the_description_is_a_table_of_the_points(tmp_path):
    points = [
        ("none", SweepPoint(tmp_path / "a", "finished", {"generation_s": 3.0})),
        ("ngram k=3", SweepPoint(tmp_path / "b", "failed", {})),
    ]
    assert note(points).splitlines() == [
        "| run | state | generation_s |",
        "| --- | --- | --- |",
        "| none | finished | 3 |",
        "| ngram k=3 | failed | - |",
    ]


def test_a_long_description_is_cut_to_what_mlflow_takes(tmp_path):
    points = [("x" * 90, SweepPoint(tmp_path, "finished", FIGURES)) for _ in range(200)]
    text = note(points)
    assert len(text) <= 7000
    assert text.splitlines()[-1] == "| ... |"


@pytest.mark.parametrize(
    ("config", "label"),
    [
        ({"drafter": {"name": "none", "k": 3}, "init": {"name": "none"}, "name": "train"}, "none"),
        ({"drafter": {"name": "ngram", "k": 5}, "name": "a", "seed": 2}, "ngram k=5, a, seed 2"),
        (
            {
                "drafter": {"name": "eagle3", "k": "auto"},
                "init": {"name": "dapo"},
                "adaptation": {"name": "online"},
                "name": "rl_zero_cpu",
                "seed": 0,
            },
            "eagle3 k=auto dapo online, rl_zero_cpu",
        ),
        ({"steps": 7}, ""),
    ],
)  # fmt: skip
def test_a_run_is_named_after_its_arm(config, label):
    assert arm_label(config) == label


def test_every_override_is_a_tag_of_its_own():
    tags = override_tags(["drafter=ngram", "+rollout.engine_args.x=a=b", "~tracking.tags"])
    assert tags == {
        "override.drafter": "ngram",
        "override.rollout.engine_args.x": "a=b",
        "override.tracking.tags": "null",
    }


@pytest.fixture
def tracking(tmp_path, monkeypatch) -> MlflowConfig:
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "true")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    return MlflowConfig(uri=uri, experiment="exp", system_metrics=False, timeout_s=60.0)


def point_ran(
    folder: Path, tracking: MlflowConfig | None, drafter: str, parent: str | None
) -> None:
    """One step of a run, mirrored into MLflow where `tracking` is given."""
    own = {"experiment": "exp", "parent_run_id": parent, "uri": tracking.uri if tracking else ""}
    config = {"drafter": {"name": drafter, "k": 3}, "tracking": own}
    sinks = [JsonlSink(folder, config=config, overrides=[f"drafter={drafter}"])]
    if tracking is not None:
        sinks.append(MlflowSink(folder, tracking))
    recorder = Recorder(sinks)
    with recorder.span("generation"):
        pass
    recorder.log(0, {"reward/mean": 0.5})
    recorder.finish("finished")


def client_of(tracking: MlflowConfig) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking.uri)


def children(tracking: MlflowConfig, parent: str) -> dict[str, Any]:
    client = client_of(tracking)
    place = client.get_experiment_by_name("exp").experiment_id
    found = client.search_runs([place], f"tags.`mlflow.parentRunId` = '{parent}'")
    return {run.info.run_name: run for run in found}


@pytest.mark.slow
def test_points_are_below_their_sweep_with_what_they_compare_to(tmp_path, tracking):
    parent = open_sweep(tracking, "key", "table2", OVERRIDES)
    assert parent is not None
    point_ran(tmp_path / "a", tracking, "none", parent.id)
    point_ran(tmp_path / "b", tracking, "ngram", parent.id)
    assert set(children(tracking, parent.id)) == {"none", "ngram k=3"}
    points = [
        SweepPoint(tmp_path / "a", "finished", {"speedup_generation": 1.0}),
        SweepPoint(tmp_path / "b", "finished", FIGURES),
        SweepPoint(tmp_path / "gone", "failed", {}),
    ]
    end_sweep(parent, points, "failed: 1 of 3 points failed")
    below = children(tracking, parent.id)
    assert below["ngram k=3"].data.metrics["arm/speedup_generation"] == 1.5
    assert below["ngram k=3"].data.tags["override.drafter"] == "ngram"
    assert "tracking.parent_run_id" not in below["ngram k=3"].data.params
    run = client_of(tracking).get_run(parent.id)
    assert (run.info.status, run.info.run_name) == ("FAILED", "table2")
    assert (run.data.metrics["sweep/finished"], run.data.metrics["sweep/failed"]) == (2.0, 1.0)
    assert run.data.tags["override.drafter.k"] == "3,5"
    assert "| ngram k=3 | finished | 2 |" in run.data.tags["mlflow.note.content"]


@pytest.mark.slow
def test_a_rerun_goes_on_in_the_same_parent_and_adds_no_second_value(tmp_path, tracking):
    point_ran(tmp_path / "a", tracking, "none", None)
    points = [SweepPoint(tmp_path / "a", "finished", FIGURES)]
    first = open_sweep(tracking, "key", "table2", OVERRIDES)
    end_sweep(first, points, "interrupted")
    assert client_of(tracking).get_run(first.id).info.status == "KILLED"
    again = open_sweep(tracking, "key", "table2", OVERRIDES)
    assert again.id == first.id
    assert client_of(tracking).get_run(first.id).info.status == "RUNNING"
    end_sweep(again, points, "finished")
    (child,) = children(tracking, first.id).values()
    history = client_of(tracking).get_metric_history(child.info.run_id, "arm/c_k")
    assert [point.value for point in history] == [1.25]
    other = open_sweep(tracking, "other key", "table4", OVERRIDES)
    assert other.id != first.id
    end_sweep(other, [SweepPoint(tmp_path / "a", "finished", FIGURES | {"c_k": 2.0})], "finished")
    assert list(children(tracking, first.id)) == []
    (moved,) = children(tracking, other.id).values()
    assert moved.data.metrics["arm/c_k"] == 2.0


@pytest.mark.slow
def test_a_replayed_point_is_below_its_sweep_too(tmp_path, tracking):
    parent = open_sweep(tracking, "key", "table2", OVERRIDES)
    point_ran(tmp_path / "a", None, "none", parent.id)
    shutil.copytree(tmp_path / "a", tmp_path / "elsewhere")
    replay(tmp_path / "elsewhere", uri=tracking.uri)
    assert list(children(tracking, parent.id)) == ["none"]
