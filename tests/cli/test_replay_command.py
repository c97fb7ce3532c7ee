"""specrl-replay: a mistake is one line and exit code 2."""

import pytest

from specrl.cli.replay import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere is not a run folder: it does not exist"),
        (["file"], "file is a file, not a run folder"),
        (["."], "run.json"),
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
    assert says in said
    assert said.count("\n") == 1
