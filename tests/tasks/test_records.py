"""Question files: formats, duplicates, and one line for every kind of damage."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from specrl.errors import UserError
from specrl.tasks.records import Columns, load_records
from specrl.tasks.rows import split_files

COLUMNS = Columns("prompt", "answer")


def load(path, columns=COLUMNS):
    return load_records("task.train_data", str(path), "train", columns)


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_jsonl_and_parquet_give_the_same_records(tmp_path):
    rows = [{"prompt": "1+1", "answer": 2}, {"prompt": "2+2", "answer": 4}]
    lines = write_lines(tmp_path / "a.jsonl", *rows)
    table = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    expected = [("1+1", "2"), ("2+2", "4")]
    assert [(r.question, r.answer) for r in load(lines)] == expected
    assert [(r.question, r.answer) for r in load(table)] == expected


def test_chat_prompts_and_nested_answers_as_in_dapo(tmp_path):
    table = tmp_path / "dapo.parquet"
    row = {
        "prompt": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "What is 6*7?"},
        ],
        "reward_model": {"ground_truth": "42", "style": "rule"},
    }
    parquet.write_table(pyarrow.Table.from_pylist([row, row, row]), table)
    [record] = load(table, Columns("prompt", "reward_model.ground_truth"))
    assert (record.question, record.answer) == ("What is 6*7?", "42")


def test_duplicate_questions_count_once(tmp_path):
    rows = [{"prompt": "1+1", "answer": "2"}, {"prompt": " 1+1\n", "answer": "3"}]
    [record] = load(write_lines(tmp_path / "a.jsonl", *rows))
    assert record.answer == "2"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"prompt": "a", "answer": "1"}\n{"prompt": ', r"line 2 is not JSON"),
        ("a.jsonl", "[1, 2]\n", r"line 1 is not a JSON object"),
        ("a.jsonl", "[" * 100_000, r"line 1 is not JSON"),
        ("a.jsonl", b'{"prompt": "\xff"}\n', r"line 1 is not JSON"),
        ("a.jsonl", '{"question": "a", "answer": "1"}\n', r"no field prompt.*task.question_field"),
        ("a.jsonl", '{"prompt": "a"}\n', r"no field answer.*task.answer_field"),
        ("a.jsonl", '{"prompt": "a", "answer": null}\n', r"answer is a NoneType"),
        ("a.jsonl", '{"prompt": "a", "answer": " "}\n', r"answer is empty"),
        ("a.jsonl", '{"prompt": "", "answer": "1"}\n', r"line 1: the question must be text"),
        ("a.jsonl", '{"prompt": [], "answer": "1"}\n', r"line 1: the question must be text"),
        ("a.jsonl", "", r"has no rows.*prompt \(task.question_field\)"),
        ("a.parquet", b"PAR1 nonsense", r"not a readable parquet file"),
        ("a.parquet", b"", r"not a readable parquet file"),
        ("a.csv", "a,b", r"not a .parquet or .jsonl file"),
    ],
)
def test_broken_files_are_one_line_with_place_and_fix(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_parquet_file_without_the_column_names_those_it_has(tmp_path):
    table = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([{"q": "1", "answer": "1"}]), table)
    with pytest.raises(UserError, match=r"no column prompt, only q, answer; set task.question"):
        load(table)


def test_a_wrong_path_says_what_to_give():
    with pytest.raises(UserError, match=r"/nowhere/a.parquet is neither.*task.train_data=/path"):
        load("/nowhere/a.parquet")


def test_a_hub_data_set_out_of_reach_is_one_line_that_names_the_knob(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"task.train_data=/path/to/file.parquet") as caught:
        load("specrl-tests/never-published")
    assert "\n" not in str(caught.value)


def test_split_files_know_the_layouts_of_the_hub():
    gsm8k = ["main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet", "README.md"]
    assert split_files(gsm8k, "test") == ["main/test-00000-of-00001.parquet"]
    assert split_files(gsm8k, "train") == ["main/train-00000-of-00001.parquet"]
    dapo = ["data/dapo-math-17k.parquet", "README.md"]
    assert split_files(dapo, "train") == ["data/dapo-math-17k.parquet"]
    assert split_files(dapo, "test") == []
    assert split_files(["train/0.jsonl", "training.jsonl"], "train") == ["train/0.jsonl"]
