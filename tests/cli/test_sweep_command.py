"""The specrl command with -m: which points it makes, and what it refuses before the first."""

import errno
import sys

import pytest
from commands import Runs

from specrl.cli.arguments import overrides_last
from specrl.cli.sweep import planned
from specrl.cli.train import launch
from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.config.store import register


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["specrl"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")


def _points(*argv):
    """Overrides and config of each point that the sweep would run."""
    register()
    tasks = planned(*overrides_last(argv)).tasks
    return [task.overrides for task in tasks], [task.config for task in tasks]


def test_a_sweep_has_every_point_with_its_own_overrides():
    words, _ = _points("drafter=none,ngram", "-m", "seed=0,1")
    assert words == [
        ("drafter=none", "seed=0"),
        ("drafter=none", "seed=1"),
        ("drafter=ngram", "seed=0"),
        ("drafter=ngram", "seed=1"),
    ]


def test_the_demo_is_a_sweep_by_itself():
    _, configs = _points("experiment=demo")
    assert [config.drafter.name for config in configs] == ["none", "ngram", "eagle3"]


def test_in_a_sweep_over_inits_the_arm_without_a_draft_leaves_them_out():
    words, _ = _points("-m", "drafter=none,eagle3", "init=dapo,ultrachat")
    assert words[:2] == [("drafter=none",), ("drafter=none",)]
    assert words[2:] == [("drafter=eagle3", f"init={init}") for init in ("dapo", "ultrachat")]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["-m", "steps=1,0"], "steps=0: steps=0 is out of range; use a value of at least 1"),
        (
            ["-m", "drafter=none,ngram", "adaptation=offline,online"],
            "drafter=none adaptation=online: adaptation=online cannot go with drafter=none",
        ),
        (
            ["-m", "drafter=none,draft_model", "seed=1"],
            "drafter=draft_model seed=1: drafter.model is not set",
        ),
        (
            ["experiment=demo", "steps=0"],
            "drafter=none experiment=demo steps=0: steps=0 is out of range",
        ),
        (["-m", "seed=range(0,0)"], "the sweep has no points: one of its lists is empty"),
        (
            ["-m", "hydra.launcher.jobs=abc"],
            "hydra.launcher.jobs=abc is not allowed; use a whole number of points at once, e.g.",
        ),
        (
            ["-m", "hydra.launcher.job=2"],
            "hydra.launcher.job=2: there is no hydra.launcher.job; did",
        ),
        (
            ["-m", "hydra.launcher.poll_s=1"],
            "hydra.launcher.poll_s=1: hydra.launcher.poll_s exists only with hydra/launcher=specrl",
        ),
        (["-m"], "-m needs something to sweep over, e.g. drafter=none,ngram"),
        (["-m", "hydra.launcher.jobs=2"], "-m needs something to sweep over"),
        (
            ["-m", "drafter=none,eagle3", "drafter.lookup_min=1"],
            "drafter=none drafter.lookup_min=1: drafter.lookup_min=1: drafter.lookup_min exists "
            "only with drafter=ngram",
        ),
        (["-m", "+sweep=table4"], "+sweep=table4: sweep is always there; write sweep=table4"),
        (["sweep=tabel4"], "sweep=tabel4 is not a choice; use one of figure2,"),
        (["hydra.mode=MULTIRUN", "steps=1,0"], "steps=0: steps=0 is out of range"),
    ],
)
def test_a_wrong_point_stops_a_sweep_before_the_first_starts(argv, line, capsys, tmp_path):
    runs = Runs()
    assert launch(argv, runs) == 2
    assert runs.calls == []
    said = capsys.readouterr().err
    assert said.startswith(f"specrl: {line}")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["hydra.launcher.jobs=0", "seed=0,1"],
            "hydra.launcher.jobs=0 is out of range; use a value of at least",
        ),
        (["cluster=h100"], "cluster=h100 lives in a Slurm job; add hydra/launcher=specrl_slurm"),
        (
            ["model=tiny", "learner.tensor_parallel=1,3"],
            "model=tiny learner.tensor_parallel=3: learner.tensor_parallel=3 does not divide the "
            "model's 8 attention heads",
        ),
        (
            ["model=tiny", "cluster=local,local_gpu"],
            "model=tiny cluster=local_gpu: engines and learner need 2 GPUs and this machine has 0; "
            "use cluster=local",
        ),
        (
            ["model=tiny,qwen3_235b_a22b"],
            "model=qwen3_235b_a22b: model=qwen3_235b_a22b: Qwen3MoeForCausalLM needs expert",
        ),
    ],
)
def test_what_cannot_run_there_stops_a_sweep_too(words, line, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    runs = Runs()
    assert launch(["-m", *words], runs) == 2
    assert runs.calls == []
    said = capsys.readouterr().err
    assert said.startswith(f"specrl: {line}")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_points_of_a_users_own_folder_are_checked_too(tmp_path, capsys):
    (tmp_path / "experiment").mkdir()
    for name, steps in (("good", 1), ("bad", 0)):
        (tmp_path / "experiment" / f"{name}.yaml").write_text(
            f"# @package _global_\nname: ${{hydra:job.config_name}}\nsteps: {steps}\n"
        )
    runs = Runs()
    own = ["--config-dir", str(tmp_path)]
    assert launch([*own, "-m", "experiment=good,bad"], runs) == 2
    assert runs.calls == []
    assert "experiment=bad: steps=0" in capsys.readouterr().err
    _, configs = _points(*own, "-m", "experiment=good", "seed=0,1")
    assert [config.name for config in configs] == ["train", "train"]


def test_an_unknown_choice_in_a_sweep_stops_it_before_the_first_point(capsys):
    runs = Runs()
    assert launch(["-m", "drafter=none,ngrm"], runs) == 2
    assert runs.calls == []
    assert "did you mean drafter=ngram?" in capsys.readouterr().err


def test_a_knob_that_some_points_have_is_set_in_those():
    words, configs = _points("-m", "drafter=none,ngram", "drafter.lookup_min=1,3")
    assert words[0] == words[1] == ("drafter=none",)
    assert words[2:] == [("drafter=ngram", f"drafter.lookup_min={n}") for n in (1, 3)]
    assert [config.drafter.lookup_min for config in configs[2:]] == [1, 3]
    assert run_folder(configs[0]) == run_folder(load(["drafter=none"]))
    mixed = ["model=tiny,smollm2_135m", "model.tiny.seed=3", "drafter=none"]
    words, configs = _points("-m", *mixed)
    assert [config.model.tiny.get("seed") for config in configs] == [3, None]
    assert words[1] == ("model=smollm2_135m", "drafter=none")


def test_a_disk_that_is_full_ends_a_sweep_in_one_line(capsys, monkeypatch):
    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "outputs/run/status.json")

    monkeypatch.setattr("specrl.sweep.launch.launch", no_room)
    assert launch(["-m", "model=tiny", "seed=0,1"], Runs()) == 1
    assert capsys.readouterr().err == (
        "specrl: nothing can be written to outputs/run/status.json: No space left on device; make "
        "room there, then the same command goes on\n"
    )


def test_an_override_of_a_sweep_may_refer_to_another_knob():
    _, configs = _points("-m", "seed=3,4", "evaluation.every=${seed}")
    assert [config.evaluation.every for config in configs] == [3, 4]
