"""Real MLflow: sqlite, servers that are dead, hanging or dying, and a real server."""

import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specrl.cli.replay import main as replay_main
from specrl.config.tracking import MlflowConfig
from specrl.telemetry.jsonl import JsonlSink, read_run
from specrl.telemetry.mlflow_sink import MlflowSink
from specrl.telemetry.recorder import STAGES, Recorder
from specrl.telemetry.replay import replay

pytestmark = pytest.mark.slow

CONFIG = {"steps": 7, "model": {"name": "tiny"}, "tracking": {"experiment": "exp"}}
OVERRIDES = ["model=tiny", "drafter.k=5"]


@pytest.fixture(autouse=True)
def quick_http(monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "true")


@pytest.fixture
def new_uri(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/store/mlflow.db"


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory) -> Path:
    """MLflow takes seconds to lay out a database."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    with pytest.MonkeyPatch.context() as quiet:
        quiet.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        client_of(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path, empty_store) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


def opened(
    folder: Path,
    uri: str,
    resume_step: int | None = None,
    run_id: str | None = None,
    config: dict[str, Any] = CONFIG,
    timeout_s: float = 60.0,
    warnings: list[str] | None = None,
    system_metrics: bool = False,
) -> Recorder:
    tracking = MlflowConfig(
        uri=uri, experiment="exp", timeout_s=timeout_s, system_metrics=system_metrics
    )
    jsonl = JsonlSink(
        folder, config=config, overrides=OVERRIDES, tags={"who": "me"}, resume_step=resume_step
    )
    warn = ([] if warnings is None else warnings).append
    return Recorder([jsonl, MlflowSink(folder, tracking, run_id=run_id, warn=warn)])


def log_steps(recorder: Recorder, steps: range) -> None:
    for step in steps:
        for stage in STAGES:
            with recorder.span(stage):
                pass
        recorder.log(step, {"reward/mean": step / 10, "version": float(step)})


def own_process() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])}


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def runs(uri: str) -> list[Any]:
    client = client_of(uri)
    experiment = client.get_experiment_by_name("exp")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def history(uri: str, run_id: str, name: str = "reward/mean") -> list[tuple[int, float]]:
    points = client_of(uri).get_metric_history(run_id, name)
    return sorted((point.step, point.value) for point in points)


def wait_until_logged(uri: str, recorder: Recorder, step: int) -> None:
    deadline = time.monotonic() + 60
    while recorder.run_id is None or step not in dict(history(uri, recorder.run_id)):
        assert time.monotonic() < deadline, f"step {step} never reached {uri}"
        time.sleep(0.05)


EXPECTED = [(step, step / 10) for step in range(1, 8)]


def test_sqlite_gets_params_tags_config_and_every_step(tmp_path, new_uri):
    uri, warnings = new_uri, []
    recorder = opened(tmp_path / "run", uri, warnings=warnings)
    log_steps(recorder, range(1, 8))
    recorder.log(8, {"policy/loss": math.nan})
    recorder.finish("finished")
    assert warnings == []
    (run,) = runs(uri)
    assert run.info.run_id == recorder.run_id
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["model.name"] == "tiny"
    assert (run.data.tags["override.drafter.k"], run.data.tags["who"]) == ("5", "me")
    assert history(uri, run.info.run_id) == EXPECTED
    assert len(history(uri, run.info.run_id, "time/step_s")) == 7
    assert math.isnan(history(uri, run.info.run_id, "policy/loss")[0][1])
    saved = client_of(uri).download_artifacts(run.info.run_id, "config.yaml", str(tmp_path))
    assert yaml.safe_load(Path(saved).read_text()) == CONFIG


def test_the_machine_s_cpu_and_memory_are_logged_while_a_run_lasts(tmp_path, uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")  # MLflow's own: 10 s
    warnings: list[str] = []
    recorder = opened(tmp_path / "run", uri, warnings=warnings, system_metrics=True)
    recorder.log(0, {"reward/mean": 0.0})
    wait_until_logged(uri, recorder, 0)
    names = ("cpu_utilization_percentage", "system_memory_usage_percentage")

    def measured(name: str) -> list[float]:
        return [value for _, value in history(uri, recorder.run_id, f"system/{name}")]

    deadline = time.monotonic() + 60
    while not all(len(measured(name)) > 1 for name in names):
        assert time.monotonic() < deadline, "no system metrics"
        time.sleep(0.1)
    recorder.finish("finished")
    assert warnings == []
    (run,) = runs(uri)
    assert (run.info.status, run.data.metrics["reward/mean"]) == ("FINISHED", 0.0)
    for name in names:
        assert 0.0 < max(measured(name)) <= 100.0


def test_a_run_killed_after_step_7_and_resumed_at_5_has_each_step_once(tmp_path, uri):
    folder = tmp_path / "run"
    # A process of its own, so that kill -9 is real.
    script = (
        "import os, signal; from tests.telemetry.test_mlflow_real import *\n"
        f"r = opened(Path({str(folder)!r}), {uri!r}); log_steps(r, range(1, 8))\n"
        f"wait_until_logged({uri!r}, r, 7); os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", script]
    killed = subprocess.run(command, env=own_process(), check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert [run.info.status for run in runs(uri)] == ["RUNNING"]

    warnings: list[str] = []
    changed = CONFIG | {"steps": 9}
    recorder = opened(folder, uri, resume_step=5, config=changed, warnings=warnings)
    log_steps(recorder, range(6, 10))
    recorder.finish("finished")
    assert warnings == []
    (run,) = runs(uri)
    assert run.info.status == "FINISHED"
    assert (run.data.params["steps"], run.data.tags["changed.steps"]) == ("7", "9")
    for name in ("reward/mean", "time/step_s", "version"):
        assert [step for step, _ in history(uri, run.info.run_id, name)] == list(range(1, 10))
    assert [record.step for record in read_run(folder).records] == list(range(1, 10))


def test_a_finished_run_that_goes_on_keeps_its_last_evaluation_once(tmp_path, uri):
    folder = tmp_path / "run"
    first = opened(folder, uri)
    log_steps(first, range(2))
    first.log(2, {"eval/accuracy": 0.5})
    first.finish("finished")

    second = opened(folder, uri, resume_step=1)
    with second.span("generation"):
        pass
    second.log(2, {"eval/accuracy": 0.5, "reward/mean": 0.2})
    second.finish("finished")
    (run,) = runs(uri)
    assert history(uri, run.info.run_id, "eval/accuracy") == [(2, 0.5)]
    assert [step for step, _ in history(uri, run.info.run_id)] == [0, 1, 2]


def test_steps_that_a_kill_kept_from_mlflow_are_made_up_on_resume(tmp_path, uri):
    folder = tmp_path / "run"
    log_steps(Recorder([JsonlSink(folder, config=CONFIG)]), range(1, 6))
    recorder = opened(folder, uri, resume_step=5)
    log_steps(recorder, range(6, 8))
    recorder.finish("finished")
    assert history(uri, recorder.run_id) == EXPECTED


def test_the_checkpoints_run_id_is_followed_and_an_unknown_one_is_not(tmp_path, uri):
    first = opened(tmp_path / "run", uri)
    log_steps(first, range(1, 3))
    first.finish("interrupted")
    assert [run.info.status for run in runs(uri)] == ["KILLED"]
    (tmp_path / "run" / "run.json").unlink()
    second = opened(tmp_path / "run", uri, resume_step=2, run_id=first.run_id)
    log_steps(second, range(3, 5))
    second.finish("failed: NaN in loss")
    (run,) = runs(uri)
    assert (run.info.status, run.data.tags["failure"]) == ("FAILED", "failed: NaN in loss")
    assert [step for step, _ in history(uri, run.info.run_id)] == [1, 2, 3, 4]
    third = opened(tmp_path / "other", uri, run_id="f" * 32)
    third.finish("finished")
    assert third.run_id != "f" * 32
    assert len(runs(uri)) == 2


def test_a_fresh_start_in_the_same_folder_ends_the_stale_run(tmp_path, uri):
    stale = opened(tmp_path / "run", uri)
    log_steps(stale, range(1, 3))
    wait_until_logged(uri, stale, 2)
    fresh = opened(tmp_path / "run", uri)
    log_steps(fresh, range(1, 2))
    fresh.finish("finished")
    status = {run.info.run_id: run.info.status for run in runs(uri)}
    assert status == {stale.run_id: "KILLED", fresh.run_id: "FINISHED"}


def test_replay_fills_an_empty_store_once_and_continues_a_partial_one(tmp_path, uri, capsys):
    folder = tmp_path / "run"
    recorder = Recorder([JsonlSink(folder, config=CONFIG, overrides=OVERRIDES)])
    log_steps(recorder, range(1, 4))
    assert replay(folder, uri=uri).written == 3
    assert runs(uri)[0].info.status == "KILLED"
    log_steps(recorder, range(4, 5))
    recorder.finish("finished")
    assert replay_main([str(folder), str(tmp_path / "none"), "--uri", uri]) == 2
    said = capsys.readouterr()
    assert "1 steps written, 3 already there" in said.out
    assert "not a run folder" in said.err
    assert replay(folder, uri=uri).written == 0
    (run,) = runs(uri)
    assert run.info.status == "FINISHED"
    assert history(uri, run.info.run_id) == EXPECTED[:4]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def hanging_server() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        listener.settimeout(60)
        yield listener


def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def trains_through(folder: Path, server: str, sqlite: str) -> None:
    warnings: list[str] = []
    recorder = opened(folder, server, timeout_s=1.0, warnings=warnings)
    log_steps(recorder, range(1, 8))
    recorder.finish("finished")
    assert recorder.run_id is None
    assert any(f"specrl-replay {folder}" in warning for warning in warnings)
    assert len(warnings) <= 2
    done = replay(folder, uri=sqlite)
    assert history(sqlite, done.run_id) == EXPECTED
    assert runs(sqlite)[0].info.status == "FINISHED"


def test_a_dead_server_costs_nothing_but_a_replay(tmp_path, uri):
    trains_through(tmp_path / "run", f"http://127.0.0.1:{closed_port()}", uri)


def test_a_hanging_server_costs_nothing_but_a_replay(tmp_path, uri, hanging_server):
    trains_through(tmp_path / "run", address(hanging_server), uri)


def test_the_process_ends_although_the_server_hangs(tmp_path, hanging_server):
    script = (
        "from tests.telemetry.test_mlflow_real import *\n"
        f"r = opened(Path({str(tmp_path / 'run')!r}), {address(hanging_server)!r}, timeout_s=0.5)\n"
        "input(); log_steps(r, range(1, 8)); r.finish('finished')"
    )
    env = own_process() | {"MLFLOW_HTTP_REQUEST_TIMEOUT": "3600"}
    with subprocess.Popen([sys.executable, "-c", script], env=env, stdin=subprocess.PIPE) as child:
        connection, _ = hanging_server.accept()
        with connection:  # a request is on its way, and stays so
            child.communicate(b"go on\n", timeout=60)
    assert child.returncode == 0
    assert len(read_run(tmp_path / "run").records) == 7


def start_server(folder: Path, port: int) -> subprocess.Popen[bytes]:
    store = f"sqlite:///{folder}/server.db"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store,
               "--artifacts-destination", str(folder / "artifacts"), "--workers", "1",
               "--host", "127.0.0.1", "--port", str(port)]  # fmt: skip
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
        except OSError:
            time.sleep(0.3)
        else:
            return server
    stop(server)
    raise AssertionError("mlflow server did not start in 120 s")


def stop(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGKILL)
    server.wait(30)


def test_a_real_server_dies_midway_and_gets_everything_by_replay(
    tmp_path, monkeypatch, empty_store
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    folder, port = tmp_path / "run", closed_port()
    server_uri = f"http://127.0.0.1:{port}"
    warnings: list[str] = []
    shutil.copy(empty_store, tmp_path / "server.db")
    server = start_server(tmp_path, port)
    try:
        recorder = opened(folder, server_uri, timeout_s=2.0, warnings=warnings)
        log_steps(recorder, range(1, 4))
        wait_until_logged(server_uri, recorder, 3)
    finally:
        stop(server)
    log_steps(recorder, range(4, 8))
    recorder.finish("finished")
    assert any("specrl-replay" in warning for warning in warnings)
    server = start_server(tmp_path, port)
    try:
        done = replay(folder, uri=server_uri)
        assert (done.run_id, done.written, done.present) == (recorder.run_id, 4, 3)
        assert history(server_uri, done.run_id) == EXPECTED
        (run,) = runs(server_uri)
        assert run.info.status == "FINISHED"
        assert client_of(server_uri).list_artifacts(done.run_id)[0].path == "config.yaml"
    finally:
        stop(server)


def test_logging_a_step_costs_training_less_than_10_ms(tmp_path, uri):
    recorder = opened(tmp_path / "run", uri)
    metrics = {f"metric/{i}": float(i) for i in range(40)}
    recorder.log(0, metrics)
    costs_ms = []
    for step in range(1, 41):
        began = time.perf_counter()
        recorder.log(step, metrics)
        costs_ms.append(1000 * (time.perf_counter() - began))
        time.sleep(0.05)
    recorder.finish("finished")
    assert statistics.median(costs_ms) < 10
    assert len(history(uri, recorder.run_id, "metric/0")) == 41
