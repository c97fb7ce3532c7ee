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
SIX = ("steps=6", "checkpoint.every=3", *ONLINE_DRAFT)
ENDLESS = (*SIX, "steps=100000")


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
    assert start(folder, *SIX).wait(DEADLINE_S) == 0, (folder / "output").read_text()
    return folder


def test_engine_and_learner_agree_on_every_token_of_every_version(whole: Path) -> None:
    metrics = steps(whole)
    assert [step["version"] for step in metrics] == list(range(6))
    assert len({round(step["policy/entropy"], 5) for step in metrics}) == 6
    assert max(step["policy/logprob_diff_max"] for step in metrics) < 1e-4
    assert logged_steps(whole) == ("FINISHED", list(range(6)))


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed, went on, and got a ctrl-C in its eighth step."""
    folder = tmp_path_factory.mktemp("resumed")
    process = start(folder, *ENDLESS)
    wait_until(lambda: len(steps(folder)) >= 4, process)
    children = descendants(process.pid)
    process.kill()
    process.wait()
    assert all_gone(children)
    assert len(steps(folder)) < 6

    process = start(folder, *ENDLESS)
    wait_until(lambda: len(steps(folder)) >= 7, process)
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: the whole group gets it
    assert process.wait(DEADLINE_S) == 130, (folder / "output").read_text()
    assert all_gone(children)
    assert "going on from" in (folder / "output").read_text()
    return folder


def test_after_kill_9_the_same_command_goes_on_with_the_same_losses(
    whole: Path, resumed: Path
) -> None:
    expected, got = steps(whole), steps(resumed)[:6]
    assert len(got) == len(expected) == 6
    for name in ("policy/loss", "policy/entropy", "policy/grad_norm", "draft/loss"):
        assert [s[name] for s in got] == pytest.approx([s[name] for s in expected], abs=1e-5)
    for name in ("rollout/length_mean", "spec/num_drafts", "spec/acceptance_length"):
        assert [s[name] for s in got] == [s[name] for s in expected]
    assert min(s["spec/acceptance_length"] for s in expected) > 1.0  # some tokens were accepted
    assert len({round(s["policy/loss"], 7) for s in expected}) > 3
    assert len({round(s["draft/loss"], 5) for s in expected}) == 6


def test_ctrl_c_finishes_the_step_saves_and_leaves_one_mlflow_run(resumed: Path) -> None:
    done = len(steps(resumed))
    assert (run_folder(resumed) / "checkpoints" / f"step-{done:06d}").is_dir()
    assert logged_steps(resumed) == ("KILLED", list(range(done)))


def logged_steps(folder: Path) -> tuple[str, list[int]]:
    """Status of the only MLflow run below `folder`, and the steps that it has, each once."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("specrl")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    logged = client.get_metric_history(run.info.run_id, "policy/loss")
    return run.info.status, sorted(point.step for point in logged)


def test_a_corrupt_checkpoint_gives_way_to_the_one_before_and_a_dead_engine_keeps_the_steps_done(
    whole: Path,
) -> None:
    checkpoints = sorted((run_folder(whole) / "checkpoints").glob("step-*"))
    victim = max(checkpoints[-1].glob("*.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-7])
    process = start(whole, *ENDLESS)
    wait_until(lambda: len(steps(whole)) >= 7, process)
    log = run_folder(whole) / "logs" / "engine-0.log"
    holders = [p for p in descendants(process.pid) if writes_to(p, log)]
    holders[0].kill()
    assert process.wait(DEADLINE_S) == 1
    output = (whole / "output").read_text()
    assert f"{checkpoints[-1]} is not intact" in output.replace("\n", "")
    assert f"going on from {checkpoints[-2]}" in output.replace("\n", "")
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith("specrl: ")
    assert "engine-0 died" in last
    assert str(log) in last
    done = len(steps(whole))
    assert (run_folder(whole) / "checkpoints" / f"step-{done:06d}").is_dir()


def writes_to(process: psutil.Process, log: Path) -> bool:
    try:
        return os.path.realpath(f"/proc/{process.pid}/fd/1") == str(log)
    except OSError:
        return False
