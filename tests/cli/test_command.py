"""The specrl command: exit codes, one line a mistake, sweeps that go on."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import Runs

from specrl import __version__
from specrl.cli.train import launch
from specrl.errors import RunError, UserError
from specrl.sweep.status import read_status

ROOT = Path(__file__).parents[2]


def _specrl(*argv):
    return _python("-c", "from specrl.cli.train import main; main()", *argv)


def _python(*argv):
    command = [sys.executable, *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["specrl"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")


def test_a_run_gets_its_config_folder_and_overrides(tmp_path):
    runs = Runs()
    assert launch(["drafter=ngram", "steps=3"], runs) == 0
    ((config, folder, overrides),) = runs.calls
    assert (config.drafter.name, config.steps) == ("ngram", 3)
    assert folder.parts[0] == "outputs"
    assert overrides == ["drafter=ngram", "steps=3"]
    status = read_status(folder)
    assert (status.state, status.attempt, status.steps) == ("finished", 1, 3)
    assert list(tmp_path.iterdir()) == [tmp_path / "outputs"]


@pytest.mark.parametrize(
    ("error", "code"), [(RunError("engine gone"), 1), (UserError("no such\nfolder"), 2)]
)
def test_a_failing_run_is_one_line_and_an_exit_code(error, code, capsys):
    assert launch(["drafter=none"], Runs(none=error)) == code
    said = capsys.readouterr().err
    assert said == f"specrl: {' '.join(str(error).split())}\n"


def test_a_mistake_found_before_the_run_wrote_anything_leaves_no_folder(tmp_path):
    argv = ["drafter=none", "output_dir=new/place"]
    assert launch(argv, Runs(none=UserError("no such folder"))) == 2
    assert list(tmp_path.iterdir()) == []
    assert launch(argv, Runs(none=RunError("engine gone"))) == 1
    assert len(list(tmp_path.glob("new/place/*/status.json"))) == 1


def test_a_mistake_found_later_leaves_what_the_run_wrote(tmp_path):
    def run(_, folder, __):
        (folder / "run.json").touch()
        raise UserError("no such argument")

    assert launch(["drafter=none"], run) == 2
    assert len(list(tmp_path.glob("outputs/*/run.json"))) == 1


def test_a_bug_shows_its_traceback(capsys):
    assert launch(["drafter=none"], Runs(none=KeyError("oops"))) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["--dry-run"]], ids=["run", "dry"])
def test_what_a_run_cannot_start_with_is_told_at_once(argv, capsys, tmp_path):
    runs = Runs()
    assert launch(["drafter=draft_model", "drafter.model=./no", *argv], runs) == 2
    assert runs.calls == []
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("specrl: drafter.model=./no is neither a folder nor a hub id;")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_130_and_written_down(capsys):
    runs = Runs(none=KeyboardInterrupt())
    assert launch(["drafter=none"], runs) == 130
    assert read_status(runs.calls[0][1]).state == "interrupted"
    assert capsys.readouterr().err == "specrl: interrupted\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--drafter=ngram"], "write drafter=ngram"),
        (["--drafter", "ngram"], "write drafter=<value>"),
        (["--cfg", "nothing"], "--cfg"),
        (["steps"], "steps=100"),
        (["rollout.max_tokens=abc"], "rollout.max_tokens=abc is not allowed"),
        (["steps=0"], "steps=0 is out of range"),
        (["output_dir=${nope}"], "output_dir: there is no nope"),
        (["output_dir=${oc.env:SPECRL_NOPE}"], "output_dir: the environment variable SPECRL_NOPE"),
        (["-p", "drafter"], "write --cfg job --package drafter"),
        (["--resolve"], "write --cfg job --resolve"),
        (["-m", "--run", "seed=0,1"], "leave one of them out"),
        (["--experimental-rerun=x.pickle"], "rerun=true starts it again"),
        (["--config-dir=/nope"], "--config-dir=/nope is no folder"),
        (["--config-path=/nope"], "give --config-path a folder"),
        (["--cfg", "job", "--package", "nope"], "the config has no nope"),
        (["--cfg", "job", "steps=0"], "steps=0 is out of range"),
        (["drafter=ngram", "adaptation=online"], "use adaptation=offline"),
    ],
)
def test_a_wrong_command_is_one_line_and_runs_nothing(argv, says, capsys):
    runs = Runs()
    assert launch(argv, runs) == 2
    said = capsys.readouterr().err
    assert said.startswith("specrl: ")
    assert said.count("\n") == 1
    assert says in said
    assert runs.calls == []


def test_a_dry_run_says_what_the_paper_s_sweep_costs(capsys):
    assert launch(["sweep=table1", "experiment=rl_zero_cpu", "--dry-run"], Runs()) == 0
    said = (
        "sweep=table1 as it is: budget (estimate): about 1.3 hours on 2 cores, 4 runs of 20 steps"
    )
    assert said in capsys.readouterr().out


def test_a_dry_run_of_one_run_starts_and_writes_nothing(tmp_path, capsys):
    runs = Runs()
    assert launch(["drafter=ngram", "model=tiny", "--dry-run"], runs) == 0
    said = capsys.readouterr().out
    assert said.startswith("dry run: 1 point, 0 done already, 1 to run on this machine\n")
    assert "node 0: learner-0 engine-0" in said
    assert runs.calls == []
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_for_slurm_shows_the_jobs_and_starts_and_writes_nothing(tmp_path, capsys):
    sweep = ["-m", "sweep=table1_paper", "experiment=rl_think"]
    where = ["hydra/launcher=specrl_slurm", "cluster=gb200_nvl72", "cluster.partition=batch"]
    runs = Runs()
    assert launch([*sweep, *where, "--dry-run"], runs) == 0
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert said[0] == "dry run: 2 points, 0 done already, 2 to run as Slurm jobs"
    for line in (
        "layout of points 1, 2",
        "model=qwen3_8b: 36 layers, 32 heads, 8 key/value heads",
        "engine replicas: 24 x 1 TP, 1 GPU each",
        "learner: 4 TP x 2 DP, 1 GPU a rank",
        "cluster=gb200_nvl72: 32 GPUs used",
        "8 nodes x 4 GPUs = 32 GPUs",
        "node 1: learner-4 learner-5 learner-6 learner-7",
        "node 7: engine-20 engine-21 engine-22 engine-23",
        "#!/bin/bash",
        *("#SBATCH --nodes=8", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=4"),
        *("#SBATCH --partition=batch", "#SBATCH --signal=USR2@900", "#SBATCH --exclusive"),
    ):
        assert line in said
    assert any(line.startswith("srun ") for line in said)
    assert runs.calls == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["-m", "hydra.launcher.jobs=0", "seed=0,1"], "hydra.launcher.jobs=0 is out of range"),
        (
            ["-m", "hydra.launcher.jobs=0", "seed=0,1", "--dry-run"],
            "hydra.launcher.jobs=0 is out of range",
        ),
        (
            ["-m", "hydra/launcher=specrl_slurm", "hydra.launcher.poll_s=nan", "seed=0,1"],
            "hydra.launcher.poll_s=nan is out of range; use a value of at least 0",
        ),
        (["-m", "hydra.sweeper.max_batch_size=0", "seed=0,1"], "max_batch_size=0 is out of range"),
        (["-m", "seed=range(0,1000000000)", "drafter=none,ngram"], "10000 points, most of them of"),
        (["-m", "seed=interval(0,1)"], "write the values"),
        (["-m", "seed=range(0,3,0)"], "another step"),
        (
            ["-m", "hydra.launcher.jobs=x", "seed=0,1"],
            "hydra.launcher.jobs=x is not allowed; use a whole",
        ),
        (["hydra/launcher=specrl_nope"], "specrl_local"),
        (["--dry-run", "--cfg", "job"], "--dry-run shows what a run would do"),
    ],
)
def test_a_launcher_is_checked_before_anything_runs(argv, says, capsys):
    runs = Runs()
    assert launch(argv, runs) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert runs.calls == []


def test_the_composed_config_can_be_shown(capsys):
    assert launch(["drafter=ngram", "--cfg", "job", "-p", "drafter"], Runs()) == 0
    assert "lookup_max: 4" in capsys.readouterr().out


def test_a_config_with_unset_keys_can_be_shown(capsys):
    assert launch(["drafter=draft_model", "--cfg", "job", "-p", "drafter"], Runs()) == 0
    assert "model: ???" in capsys.readouterr().out


def test_an_override_may_refer_to_another_knob():
    runs = Runs()
    assert launch(["seed=3", "evaluation.every=${seed}"], runs) == 0
    assert runs.calls[0][0].evaluation.every == 3


def test_an_output_dir_that_cannot_be_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert launch(["-m", "seed=0,1", "output_dir=file/below"], Runs()) == 2
    assert "set output_dir" in capsys.readouterr().err


def test_a_mistake_on_the_real_command_line_is_one_line_and_exit_code_2():
    done = _specrl("drafter=ngrm")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("specrl: drafter=ngrm")
    assert done.stderr.count("\n") == 1


def test_help_shows_what_to_type_first():
    assert "specrl experiment=demo" in _specrl("--help").stdout


def test_nothing_heavy_is_imported_before_a_run():
    heavy = "{'torch', 'vllm', 'ray', 'mlflow', 'transformers', 'megatron'}"
    code = (
        "import sys; from specrl.cli.train import launch;"
        f"launch([], lambda *_: print({heavy} & set(sys.modules)))"
    )
    done = _python("-c", code)
    assert done.stdout.strip() == "set()"


def test_tab_completion_lists_choices_and_knobs(monkeypatch):
    monkeypatch.setenv("COMP_LINE", "specrl drafter=ngram drafter.look")
    done = _specrl("-sc", "query=bash")
    assert done.stdout.split() == ["drafter.lookup_max=", "drafter.lookup_min="]


def test_the_version_is_specrls_own(capsys):
    assert launch(["--version"], Runs()) == 0
    assert capsys.readouterr().out == f"specrl {__version__}\n"
