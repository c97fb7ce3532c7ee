"""Whole runs of the real command: killed, interrupted, resumed, with a draft that learns."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
ENDLESS = ("steps=100000", "checkpoint.every=3", *ONLINE_DRAFT)


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


class Run(NamedTuple):
    """What there was when the run's process was gone."""

    folder: Path
    steps: list[dict[str, float]]
    checkpoints: list[Path]
    said: str


def left_in(folder: Path) -> Run:
    checkpoints = sorted((run_folder(folder) / "checkpoints").glob("step-*"))
    return Run(folder, steps(folder), checkpoints, (folder / "output").read_text())


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Undisturbed for seven steps and two checkpoints, then killed."""
    folder = tmp_path_factory.mktemp("run")
    process = start(folder, *ENDLESS)
    wait_until(lambda: len(steps(folder)) >= 7, process)
    children = descendants(process.pid)
    process.kill()
    process.wait()
    assert all_gone(children)
    return left_in(folder)


def test_engine_and_learner_agree_on_every_token_of_every_version(killed: Run) -> None:
    assert [step["version"] for step in killed.steps] == list(range(len(killed.steps)))
    assert len({round(step["policy/entropy"], 5) for step in killed.steps}) == len(killed.steps)
    assert max(step["policy/logprob_diff_max"] for step in killed.steps) < 1e-4


class Resumed(NamedTuple):
    """The same command on the killed run, its newest checkpoint `corrupt`, until its engine died.

    It went on from `intact`.
    """

    corrupt: Path
    intact: Path
    run: Run


@pytest.fixture(scope="module")
def resumed(killed: Run) -> Resumed:
    *_, intact, corrupt = killed.checkpoints
    victim = max(corrupt.glob("*.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-7])
    folder = killed.folder
    process = start(folder, *ENDLESS)
    wait_until(lambda: len(steps(folder)) >= len(killed.steps) + 2, process)
    log = run_folder(folder) / "logs" / "engine-0.log"
    holders = [p for p in descendants(process.pid) if writes_to(p, log)]
    holders[0].kill()
    assert process.wait(DEADLINE_S) == 1
    return Resumed(corrupt, intact, left_in(folder))


def test_after_kill_9_and_a_corrupt_checkpoint_it_goes_on_with_the_same_losses(
    killed: Run, resumed: Resumed
) -> None:
    said = resumed.run.said.replace("\n", "")
    assert f"{resumed.corrupt} is not intact" in said
    assert f"going on from {resumed.intact}" in said
    expected, got = killed.steps, resumed.run.steps[: len(killed.steps)]
    assert len(got) == len(expected) >= 7
    for name in ("policy/loss", "policy/entropy", "policy/grad_norm", "draft/loss"):
        assert [s[name] for s in got] == pytest.approx([s[name] for s in expected], abs=1e-5)
    for name in ("rollout/length_mean", "spec/num_drafts", "spec/acceptance_length"):
        assert [s[name] for s in got] == [s[name] for s in expected]
    assert min(s["spec/acceptance_length"] for s in expected[:6]) > 1.0  # some were accepted
    assert len({round(s["policy/loss"], 7) for s in expected}) > 3
    assert len({round(s["draft/loss"], 5) for s in expected}) == len(expected)


def test_a_dead_engine_is_one_line_and_keeps_the_steps_done(resumed: Resumed) -> None:
    run = resumed.run
    assert "Traceback" not in run.said
    last = run.said.splitlines()[-1]
    assert last.startswith("specrl: ")
    assert "engine-0 died" in last
    assert str(run_folder(run.folder) / "logs" / "engine-0.log") in last
    assert run.checkpoints[-1].name == f"step-{len(run.steps):06d}"


@pytest.fixture(scope="module")
def interrupted(resumed: Resumed) -> Run:
    """The same command again, with a ctrl-C in one of its steps."""
    folder = resumed.run.folder
    process = start(folder, *ENDLESS)
    wait_until(lambda: len(steps(folder)) > len(resumed.run.steps), process)
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: the whole group gets it
    assert process.wait(DEADLINE_S) == 130, (folder / "output").read_text()
    assert all_gone(children)
    return left_in(folder)


def test_ctrl_c_finishes_the_step_saves_and_leaves_one_mlflow_run(
    resumed: Resumed, interrupted: Run
) -> None:
    said = interrupted.said.removeprefix(resumed.run.said).replace("\n", "")
    assert f"going on from {resumed.run.checkpoints[-1]}" in said
    done = len(interrupted.steps)
    assert interrupted.checkpoints[-1].name == f"step-{done:06d}"
    assert logged_steps(interrupted.folder) == ("KILLED", list(range(done)))


def logged_steps(folder: Path) -> tuple[str, list[int]]:
    """Status of the only MLflow run below `folder`, and the steps that it has, each once."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("specrl")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    logged = client.get_metric_history(run.info.run_id, "policy/loss")
    return run.info.status, sorted(point.step for point in logged)


def writes_to(process: psutil.Process, log: Path) -> bool:
    try:
        return os.path.realpath(f"/proc/{process.pid}/fd/1") == str(log)
    except OSError:
        return False
