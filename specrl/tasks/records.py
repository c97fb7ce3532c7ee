"""Questions with reference answers from parquet and JSON-lines files, local or on the hub."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrl.errors import UserError
from specrl.tasks.rows import data_files, json_rows, parquet_rows


@dataclass(frozen=True)
class Record:
    """One question and its reference answer; `place` is file and row, for error messages."""

    question: str
    answer: str
    place: str


@dataclass(frozen=True)
class Columns:
    """Where a row keeps question and answer; dots go into nested columns."""

    question: str
    answer: str


def load_records(key: str, source: str, split: str, columns: Columns) -> list[Record]:
    """Records of `source` in file order, the first of each question text.

    source: a local .parquet or .jsonl file, or a hub data set `owner/name[@revision][:folder]`,
    of which the files named after `split` are read. `key` is the config key of the source.
    Raises `UserError` naming file, row and fix.
    """
    seen: set[str] = set()
    records = []
    for path in data_files(key, source, split, _expected(columns)):
        for record in _read(path, columns):
            text = normalised(record.question)
            if text not in seen:
                seen.add(text)
                records.append(record)
    if not records:
        raise UserError(f"{key}={source} has no rows; give a file with {_expected(columns)}")
    return records


def normalised(question: str) -> str:
    """The text by which two questions count as the same."""
    return " ".join(question.split())


def _read(path: Path, columns: Columns) -> Iterator[Record]:
    wanted = {"task.question_field": columns.question, "task.answer_field": columns.answer}
    rows = parquet_rows(path, wanted) if path.suffix == ".parquet" else json_rows(path)
    for place, row in rows:
        question = _question(_value(row, columns.question, "task.question_field", place), place)
        answer = _value(row, columns.answer, "task.answer_field", place)
        if isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise UserError(
                f"{place}: {columns.answer} is a {type(answer).__name__}; the reference answer "
                "must be text or a number (set task.answer_field)"
            )
        if not str(answer).strip():
            raise UserError(f"{place}: {columns.answer} is empty; remove the row or fill it in")
        yield Record(question, str(answer).strip(), place)


def _value(row: Mapping[str, Any], name: str, key: str, place: str) -> Any:
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = ", ".join(map(str, row))
            raise UserError(f"{place} has no field {name}, only {known}; set {key}")
        value = value[part]
    return value


def _question(value: Any, place: str) -> str:
    """The text itself, or the last user turn of a chat."""
    if isinstance(value, list):
        turns = [turn for turn in value if isinstance(turn, Mapping)]
        user = [turn.get("content") for turn in turns if turn.get("role") == "user"]
        value = user[-1] if user else None
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{place}: the question must be text or a chat with a user turn "
            "(set task.question_field)"
        )
    return value.strip()


def _expected(columns: Columns) -> str:
    return f"the columns {columns.question} (task.question_field) and {columns.answer} \
(task.answer_field)"
