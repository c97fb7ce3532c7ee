"""Training never waits for a tracker: slow, hanging and broken ones in place of MLflow."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from specrl.config.tracking import MlflowConfig
from specrl.telemetry.jsonl import JsonlSink, RunInfo, StepRecord
from specrl.telemetry.mlflow_run import absolute_uri, flatten, run_tags, ui_command
from specrl.telemetry.mlflow_sink import MlflowSink
from specrl.telemetry.recorder import Recorder

PATIENCE_S = 30.0


class FakeRun:
    """Takes steps once `released` is set; raises while `broken`."""

    id = "r1"

    def __init__(self) -> None:
        self.released = threading.Event()
        self.released.set()
        self.broken = False
        self.steps: list[int] = []
        self.writes = 0
        self.entered = threading.Event()
        self.ended: str | None = None

    def write(self, records: list[StepRecord]) -> int:
        self.entered.set()
        assert self.released.wait(PATIENCE_S)
        if self.broken:
            raise ConnectionError("server gone")
        self.writes += 1
        self.steps += [record.step for record in records]
        return len(records)

    def upload_config(self, run_folder: Path) -> None: ...

    def watch_system(self) -> None: ...

    def end(self, status: str | None, time_s: float) -> None:
        assert time_s > 0
        self.ended = status


def telemetry(
    folder: Path, run: FakeRun, warnings: list[str], timeout_s: float = PATIENCE_S
) -> Recorder:
    config = MlflowConfig(timeout_s=timeout_s)
    sink = MlflowSink(folder, config, warn=warnings.append, open_run=lambda: run)
    return Recorder([JsonlSink(folder, config={}), sink])


def wait_for(condition) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.005)


def test_every_step_arrives_once_and_the_run_ends(tmp_path):
    run, warnings = FakeRun(), []
    recorder = telemetry(tmp_path, run, warnings)
    for step in range(1, 51):
        recorder.log(step, {"x": 1.0})
    recorder.finish("interrupted")
    assert run.steps == list(range(1, 51))
    assert run.ended == "interrupted"
    assert recorder.run_id == "r1"
    assert warnings == []


def test_a_blocked_server_stops_no_log_call_and_gets_the_backlog_in_one_write(tmp_path):
    run, warnings = FakeRun(), []
    recorder = telemetry(tmp_path, run, warnings)
    run.released.clear()
    recorder.log(0, {"x": 1.0})
    assert run.entered.wait(PATIENCE_S)
    for step in range(1, 101):  # all return while the server holds the thread
        recorder.log(step, {"x": 1.0})
    assert run.steps == []
    run.released.set()
    recorder.finish("finished")
    assert run.steps == list(range(101))
    assert run.writes == 2


def test_a_server_that_never_answers_costs_finish_its_timeout_and_one_warning(tmp_path):
    run, warnings = FakeRun(), []
    run.released.clear()
    recorder = telemetry(tmp_path, run, warnings, timeout_s=0.2)
    recorder.log(1, {"x": 1.0})
    recorder.finish("finished")
    assert run.steps == []
    assert len(warnings) == 1
    assert f"specrl-replay {tmp_path}" in warnings[0]
    run.released.set()


def test_a_server_dying_midway_is_warned_of_once_and_tried_again_at_the_end(tmp_path):
    run, warnings = FakeRun(), []
    recorder = telemetry(tmp_path, run, warnings)
    recorder.log(1, {"x": 1.0})
    wait_for(lambda: run.steps == [1])
    run.broken = True
    for step in (2, 3, 4):
        recorder.log(step, {"x": 1.0})
    wait_for(lambda: warnings)
    run.broken = False
    recorder.finish("finished")
    assert run.steps == [1, 2, 3, 4]
    assert len(warnings) == 1
    assert "server gone" in warnings[0]
    assert run.ended == "finished"


def test_a_server_that_stays_dead_leaves_a_hint_to_replay(tmp_path):
    run, warnings = FakeRun(), []
    run.broken = True
    recorder = telemetry(tmp_path, run, warnings)
    recorder.log(1, {"x": 1.0})
    wait_for(lambda: warnings)
    recorder.finish("failed: out of memory")
    assert run.ended is None
    assert [("training goes on" in text, "specrl-replay" in text) for text in warnings] == [
        (True, False),
        (False, True),
    ]


def test_a_broken_artifact_store_costs_no_metrics(tmp_path):
    class NoArtifacts(FakeRun):
        def upload_config(self, run_folder: Path) -> None:
            raise PermissionError(f"bucket refuses {run_folder.name}")

    run, warnings = NoArtifacts(), []
    recorder = telemetry(tmp_path, run, warnings)
    recorder.log(1, {"x": 1.0})
    recorder.finish("finished")
    assert run.steps == [1]
    assert len(warnings) == 1
    assert "bucket refuses" in warnings[0]


def test_params_are_flat_and_within_mlflows_alphabet_and_length():
    config = {
        "a": {"b": 1, "c": {"d": None}, "empty": {}},
        "list": [1, 2],
        "flag": True,
        "odd#key": "x" * 7000,
    }
    params = flatten(config)
    assert params.pop("odd_key") == "x" * 6000
    assert params == {
        "a.b": "1",
        "a.c.d": "null",
        "a.empty": "{}",
        "list": "[1, 2]",
        "flag": "true",
    }


def test_overrides_and_user_tags_become_tags():
    info = RunInfo(
        key="k", previous_key=None, created_s=0.0, config={}, specrl_version="9",
        overrides=["drafter=ngram", "+rollout.engine_args.max_num_seqs=8", "learner.cores=[0,1]"],
        tags={"team": "rl", "override.drafter": "mine"}, git_commit="abc",
    )  # fmt: skip
    tags = run_tags(info)
    assert tags["override.drafter"] == "mine"
    assert tags["override.rollout.engine_args.max_num_seqs"] == "8"
    assert tags["override.learner.cores"] == "[0,1]"
    assert tags["overrides"].startswith("drafter=ngram +rollout")
    assert (tags["specrl.version"], tags["git_commit"], tags["team"]) == ("9", "abc", "rl")


def test_a_relative_sqlite_file_is_fixed_where_the_run_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_uri("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert absolute_uri(f"sqlite:///{tmp_path}/m.db") == f"sqlite:///{tmp_path}/m.db"
    assert absolute_uri("http://tracking:5000") == "http://tracking:5000"
    program, *words = ui_command("sqlite:///mlflow.db").split()
    assert shutil.which(program)
    assert words == ["ui", "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    assert ui_command("http://tracking:5000") == "open http://tracking:5000"


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_timeout_that_is_no_time_is_refused(timeout_s):
    with pytest.raises(ValueError, match=r"tracking\.timeout_s"):
        MlflowConfig(timeout_s=timeout_s)
