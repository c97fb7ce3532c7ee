"""specrl-init-draft: exit codes and one line a mistake."""

import sys
from pathlib import Path

import pytest

from specrl.cli.init_draft import launch
from specrl.config.train import TrainConfig
from specrl.errors import RunError, UserError


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["specrl-init-draft"])


def refuse(error: BaseException):
    def build(_: TrainConfig) -> str:
        raise error

    return build


def test_it_takes_the_words_of_a_run_and_prints_what_the_build_says(capsys) -> None:
    seen: list[TrainConfig] = []

    def build(config: TrainConfig) -> str:
        seen.append(config)
        return "/cache/drafts/x\n  384 prompts"

    assert launch(["drafter=eagle3", "init=ultrachat", "init.num_prompts=9"], build) == 0
    assert (seen[0].init.name, seen[0].init.num_prompts) == ("ultrachat", 9)
    assert capsys.readouterr().out == "/cache/drafts/x\n  384 prompts\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [(UserError("no such\nfile"), 2), (RunError("engine gone"), 1), (KeyboardInterrupt(), 130)],
)
def test_what_ends_a_build_is_one_line_and_an_exit_code(error, code, capsys) -> None:
    assert launch([], refuse(error)) == code
    said = capsys.readouterr().err
    assert said.startswith("specrl-init-draft: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["init=ultrachta"], "did you mean init=ultrachat"),
        (["init.num_prompts=0"], "init.num_prompts=0"),
        (["-m", "drafter.k=1,2"], "-m is not a flag"),
        (["init=checkpoint"], "needs init.path"),
        (["init=checkpoint", "init.path=./no"], "init.path=./no is neither a folder nor a hub id"),
        (["drafter=ngram", "--dry-run"], "drafter=ngram has no weights to initialise"),
        (["experiment=demo", "--dry-run"], "builds the draft of one run"),
        (["--dry-run", "--cfg", "job"], "leave out --cfg"),
    ],
)
def test_a_wrong_command_builds_nothing(argv, says, capsys) -> None:
    assert launch(argv, refuse(AssertionError("built"))) == 2
    assert says in capsys.readouterr().err


def test_a_dry_run_and_a_shown_config_build_nothing(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SPECRL_CACHE", str(tmp_path / "cache"))
    build = refuse(AssertionError("built"))
    assert launch(["debug=tiny", "drafter=eagle3", "--dry-run"], build) == 0
    said = "dry run: init=dapo for model=tiny: 16 prompts; to be built: model=tiny is not here"
    assert capsys.readouterr().out.startswith(said)
    assert launch(["init.num_prompts=9", "--cfg", "job", "-p", "init"], build) == 0
    assert "num_prompts: 9" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_help_page_shows_examples(capsys) -> None:
    assert launch(["--help"], refuse(AssertionError("built"))) == 0
    assert "specrl-init-draft init=ultrachat" in capsys.readouterr().out


def test_a_drafter_without_weights_is_refused_by_name(capsys) -> None:
    from specrl.cli.init_draft import _build

    assert launch(["debug=tiny", "drafter=ngram"], _build) == 2
    assert "drafter=ngram has no weights to initialise" in capsys.readouterr().err
