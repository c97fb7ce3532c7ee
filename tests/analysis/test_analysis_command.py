"""`python -m analysis`: files for whoever has runs, one line for whoever mistypes."""

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from synthetic import AR, EAGLE, Truth, no_views, run_of, untold, write_folder

from analysis.__main__ import main
from analysis.compose import compose
from analysis.figures.collection import all_pictures
from analysis.mlflow_runs import MlflowRuns
from analysis.paper import load_paper
from analysis.sources import Filter, Source, since
from analysis.writers import write
from specrl.errors import UserError
from specrl.telemetry.replay import replay

SPEC = Truth(alpha=2.6, cost=1.7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runs", "nowhere"], "--runs nowhere: no such folder"),
        (["--since", "yesterday", "--paper-only"], "--since yesterday is no date"),
        (["--paper-only", "--runs", "."], "--paper-only reads no runs, and --runs names some"),
        (["--warmup", "-1", "--paper-only"], "--warmup -1 is below 0"),
        (["--mlflow", "file.db"], "--mlflow=file.db is no address that MLflow can use"),
        (["--mlflow", "sqlite:///gone.db"], "--mlflow sqlite:///gone.db: no such file"),
        (["--paper-only", "--out", "a_file"], "--out a_file: a_file is a file; name a folder"),
        (["--paper-only", "--out", "a_file/x"], "--out a_file/x: "),
        (["--since", "", "--paper-only"], "--since is no date"),
        (["--mlflow", "sqlite:///a_file"], "--mlflow sqlite:///a_file: no MLflow database"),
        ([], "no --runs or --mlflow, and no folder outputs"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"python -m analysis: {message}")
    assert "; " in lines[0]
    assert (tmp_path / "a_file").stat().st_size == 0


@pytest.mark.parametrize("flag", ["--out", "--runs"])
def test_an_empty_folder_name_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([flag, ""])
    said = capsys.readouterr().err
    assert said == (
        f"python -m analysis: argument {flag}: is empty; name a folder; "
        "see python -m analysis --help\n"
    )


def test_a_folder_name_that_is_no_utf_8_is_shown_with_escapes(tmp_path: Path) -> None:
    write(tmp_path / "tables.md", "run \udce9")
    assert (tmp_path / "tables.md").read_text() == "run \\udce9"


def test_filters_that_leave_no_run_say_so(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", run_of(AR))
    source = Source([tmp_path])
    (run,) = source.read(Filter(), untold)
    day = datetime.fromtimestamp(run.created_s).isoformat(timespec="minutes")
    with pytest.raises(UserError) as caught:
        source.read(Filter(("demo", "a b"), since("2100-01-01")), untold)
    assert str(caught.value) == (
        f"no run in {tmp_path} fits --experiment demo 'a b' --since 2100-01-01T00:00; those there "
        f"are of {run.experiment} and began {day} to {day}: choose among these, or use --paper-only"
    )
    with pytest.raises(UserError, match=r"fits --since 1e[+]30 s; those"):
        source.read(Filter(since_s=1e30), untold)


def test_a_folder_that_cannot_be_written_is_one_line_with_the_fix(capsys) -> None:
    assert main(["--paper-only", "--out", "/proc/self/report"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("python -m analysis: ")
    assert "/proc/self/report" in said
    assert "; name another folder" in said
    assert said.count("\n") == 1


def test_experiments_are_chosen_by_name_or_pattern() -> None:
    run = run_of(AR)
    assert Filter().takes(run)
    assert Filter(("rl_*",)).takes(run)
    assert Filter(("specrl",)).takes(run, "specrl")
    assert not Filter(("rl_think*",)).takes(run)
    assert not Filter(("",)).takes(run)
    assert Filter(since_s=since("1970-01-01")).takes(run)


def test_help_names_every_flag_and_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    flags = ("--runs", "--mlflow", "--experiment", "--since", "--out", "--paper-only", "--warmup")
    for word in (*flags, "outputs"):
        assert word in text


@pytest.mark.slow
def test_the_package_loads_no_engine_and_no_tracker(tmp_path: Path) -> None:
    code = (
        "import sys, analysis.compose, analysis.sources, analysis.writers;"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert not {"torch", "vllm", "ray", "megatron", "mlflow", "hydra"} & set(done.stdout.split())


def test_without_runs_every_output_is_written_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "out"
    assert main(["--paper-only", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    report = compose(load_paper(), (), no_views, 1, untold)
    tables = {f"tables/{table.key}.tex" for table in report.tables}
    drawn = [picture.name for picture in all_pictures(report) if picture.figure is not None]
    figures = {f"figures/{name}.{kind}" for name in drawn for kind in ("pdf", "png")}
    assert len(tables) > 5
    assert len(drawn) > 3
    assert names == {"report.html", "tables.md", "numbers.csv"} | tables | figures
    assert f"{len(names) - 1} files beside it" in told.out


def test_two_runs_become_files_and_a_violation_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "runs" / "ar", run_of(AR))
    write_folder(tmp_path / "runs" / "spec", run_of(EAGLE, Truth(alpha=1.2, cost=0.5)))
    write_folder(tmp_path / "runs" / "broken", run_of(EAGLE, SPEC, seed=1), "failed: no memory")
    out = tmp_path / "out"
    code = main(["--runs", str(tmp_path / "runs"), "--out", str(out)])
    told = capsys.readouterr()
    assert code == 1
    assert "is above the Amdahl bound" in told.err
    assert "left out: broken: failed: no memory" in told.err
    assert str(out / "report.html") in told.out
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"report.html", "tables.md", "numbers.csv", "tables/table1.tex"} <= names
    assert any(re.fullmatch(r"figures/.+\.pdf", name) for name in names)


@pytest.mark.slow
def test_mlflow_gives_the_run_that_its_folder_gives(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    runs = {"ar": run_of(AR), "spec": run_of(EAGLE, SPEC)}
    folders = [write_folder(tmp_path / "runs" / name, run) for name, run in runs.items()]
    write_folder(tmp_path / "runs" / "failed", run_of(EAGLE, SPEC, seed=1), "failed: no memory")
    for folder in [*folders, tmp_path / "runs" / "failed"]:
        replay(folder, uri, "tests")
    tracked = {run.name: (name, run) for name, run in MlflowRuns(uri).read()}
    local = {run.name: run for run in Source([tmp_path / "runs"]).read(Filter(), untold)}
    assert tracked.keys() == local.keys() == {"ar", "spec", "failed"}
    for name, run in local.items():
        experiment, found = tracked[name]
        assert experiment == "tests"
        assert found.steps.equals(run.steps)
        assert found.evaluations.equals(run.evaluations)
        same = ("name", "key", "config", "status", "git_commit", "machine", "overrides")
        assert all(getattr(found, field) == getattr(run, field) for field in same)
    with pytest.raises(UserError, match=r"fits --since 2100.*; those there are of tests and began"):
        Source([], uri).read(Filter(since_s=since("2100-01-01")), untold)
    both = Source([tmp_path / "runs"], uri)
    assert len(both.read(Filter(), untold)) == 3
    only = Source([], uri)
    spec = next(run for run in only.read(Filter(("tests",)), untold) if run.name == "spec")
    (views,) = only.views([spec])
    assert views["spec/acceptance_length"].tolist() == spec.steps[
        "spec/acceptance_length"].tolist()  # fmt: skip
