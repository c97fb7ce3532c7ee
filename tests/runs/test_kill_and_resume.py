"""Whole runs of the real command: killed, interrupted, resumed, with a draft that learns."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from command import run_folder, start, steps

pytestmark = pytest.mark.slow

DEADLINE_S = 300
ONLINE_DRAFT = (
    "model.tiny.num_hidden_layers=4",
    "drafter=eagle3",
    "drafter.vocab_size=64",
    "init=random",
    "adaptation=online",
    "adaptation.learning_rate=1e-3",
)
STEPS = ("steps=6", "checkpoint.every=2", *ONLINE_DRAFT)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, f"specrl ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descendants(pid: int) -> list[psutil.Process]:
    """Engine, learner and what holds memory of Ray; its agents take minutes to notice a kill -9."""
    children = psutil.Process(pid).children(recursive=True)
    return [p for p in children if p.name().startswith(("ray::_Host", "raylet", "gcs_server"))]


def all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=60)
    return not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert start(folder, *STEPS).wait(DEADLINE_S) == 0, (folder / "output").read_text()
    return folder


def test_engine_and_learner_agree_on_every_token_of_every_version(whole: Path) -> None:
    metrics = steps(whole)
    assert [step["version"] for step in metrics] == list(range(6))
    assert len({round(step["policy/entropy"], 5) for step in metrics}) == 6
    assert max(step["policy/logprob_diff_max"] for step in metrics) < 1e-4


def test_after_kill_9_the_same_command_goes_on_with_the_same_losses(
    whole: Path, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    process = start(tmp_path, *STEPS)
    wait_until(lambda: len(steps(tmp_path)) >= 4, process)
    children = descendants(process.pid)
    process.kill()
    process.wait()
    assert all_gone(children)
    assert len(steps(tmp_path)) < 6

    resumed = start(tmp_path, *STEPS)
    assert resumed.wait(DEADLINE_S) == 0, (tmp_path / "output").read_text()
    assert "going on from" in (tmp_path / "output").read_text()
    expected, got = steps(whole), steps(tmp_path)
    assert len(got) == len(expected) == 6
    for name in ("policy/loss", "policy/entropy", "policy/grad_norm", "draft/loss"):
        assert [s[name] for s in got] == pytest.approx([s[name] for s in expected], abs=1e-5)
    for name in ("rollout/length_mean", "spec/num_drafts", "spec/acceptance_length"):
        assert [s[name] for s in got] == [s[name] for s in expected]
    assert len({round(s["policy/loss"], 7) for s in expected}) > 3
    assert len({round(s["draft/loss"], 5) for s in expected}) == 6

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("specrl")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    logged = client.get_metric_history(run.info.run_id, "policy/loss")
    assert sorted(point.step for point in logged) == list(range(6))


def test_ctrl_c_finishes_the_step_saves_and_ends_every_process(tmp_path: Path) -> None:
    process = start(tmp_path, "steps=100000", "checkpoint.every=0", "tracking=none")
    wait_until(lambda: len(steps(tmp_path)) >= 2, process)
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: the whole group gets it
    assert process.wait(DEADLINE_S) == 130, (tmp_path / "output").read_text()
    assert all_gone(children)
    done = len(steps(tmp_path))
    assert (run_folder(tmp_path) / "checkpoints" / f"step-{done:06d}").is_dir()


def test_a_corrupt_checkpoint_is_named_and_the_one_before_is_used(whole: Path) -> None:
    checkpoints = sorted((run_folder(whole) / "checkpoints").glob("step-*"))
    victim = max(checkpoints[-1].glob("*.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-7])
    assert start(whole, *STEPS, "steps=7").wait(DEADLINE_S) == 0
    output = (whole / "output").read_text()
    assert f"{checkpoints[-1]} is not intact" in output.replace("\n", "")
    assert f"going on from {checkpoints[-2]}" in output.replace("\n", "")
    assert len(steps(whole)) == 7


def test_a_dead_engine_ends_the_run_with_one_line_and_keeps_the_steps_done(tmp_path: Path) -> None:
    process = start(tmp_path, "steps=100000", "checkpoint.every=0", "tracking=none")
    wait_until(lambda: len(steps(tmp_path)) >= 2, process)
    log = run_folder(tmp_path) / "logs" / "engine-0.log"
    holders = [p for p in descendants(process.pid) if writes_to(p, log)]
    holders[0].kill()
    assert process.wait(DEADLINE_S) == 1
    output = (tmp_path / "output").read_text()
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith("specrl: ")
    assert "engine-0 died" in last
    assert str(log) in last
    assert list((run_folder(tmp_path) / "checkpoints").glob("step-*"))


def writes_to(process: psutil.Process, log: Path) -> bool:
    try:
        return os.path.realpath(f"/proc/{process.pid}/fd/1") == str(log)
    except OSError:
        return False
