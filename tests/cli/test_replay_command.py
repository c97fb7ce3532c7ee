"""specrl-replay: a mistake is one line and exit code 2."""

import pytest

from specrl.cli.replay import main
from specrl.cli.status import report


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere is not a run folder: it does not exist; name outputs/<run>"),
        (["file"], "file is a file, not a run folder"),
        (["."], "run.json nor metrics.jsonl; name outputs/<run>"),
        ([".", "--uri", "localhost:5000"], "--uri=localhost:5000 is no address"),
        ([".", "--uri", ""], "--uri is empty"),
        ([".", "--experiment", ""], "--experiment is empty"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("specrl-replay: ")
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [(main, "specrl-replay", []), (report, "specrl-status", ["a", "b"])],
)
def test_arguments_that_cannot_be_read_are_one_line_too(command, program, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        command(arguments)
    said = capsys.readouterr().err
    assert said.startswith(f"{program}: ")
    assert said.endswith(f"; see {program} --help\n")
    assert said.count("\n") == 1
