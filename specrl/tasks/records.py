"""Questions with reference answers from parquet and JSON-lines files, local or on the hub."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrl.errors import UserError
from specrl.hub import hub_snapshot, looks_local

SUFFIXES = (".parquet", ".jsonl")
_HUB_SOURCE = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?::(?P<folder>[\w./-]+))?"
)
_BATCH_ROWS = 8192


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
    for path in _files(key, source, split, columns):
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


def split_files(names: Iterable[str], split: str) -> list[str]:
    """The data files of one split among a data set's file names.

    Files in a folder of that name or whose own name begins with it; when none is, and the split
    is "train", all of them (a data set of one unnamed part).
    """
    data = sorted(name for name in names if name.endswith(SUFFIXES))
    named = re.compile(rf"(?:^|/){re.escape(split)}(?:[-._/]|$)")
    chosen = [name for name in data if named.search(name)]
    return chosen or (data if split == "train" else [])


def _files(key: str, source: str, split: str, columns: Columns) -> list[Path]:
    fix = f"give a local file instead: {key}=/path/to/file.parquet (or .jsonl) with "
    fix += _expected(columns)
    hub = _HUB_SOURCE.fullmatch(source)
    if hub is None or (looks_local(source) and ":" not in source and "@" not in source):
        return [_local_file(key, source, fix)]
    folder = f"{hub['folder'].strip('/')}/" if hub["folder"] else ""
    root = hub_snapshot(
        hub["repo"],
        repo_type="dataset",
        revision=hub["revision"],
        patterns=[f"{folder}*{suffix}" for suffix in SUFFIXES],
        fix=fix,
    )
    found = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
    chosen = split_files((name for name in found if name.startswith(folder)), split)
    if not chosen:
        raise UserError(f"{key}={source} has no files of split {split}; {fix}")
    return [root / name for name in chosen]


def _local_file(key: str, source: str, fix: str) -> Path:
    path = Path(source).expanduser()
    if not path.is_file():
        raise UserError(f"{key}={source} is neither a file nor a hub id; {fix}")
    if path.suffix not in SUFFIXES:
        raise UserError(f"{key}={source} is not a .parquet or .jsonl file; {fix}")
    return path


def _read(path: Path, columns: Columns) -> Iterator[Record]:
    rows = _parquet_rows(path, columns) if path.suffix == ".parquet" else _json_rows(path)
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


def _parquet_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a readable parquet file ({error})") from None
    names = file.schema_arrow.names
    wanted = {"task.question_field": columns.question, "task.answer_field": columns.answer}
    for key, name in wanted.items():
        if name.split(".")[0] not in names:
            raise UserError(f"{path} has no column {name}, only {', '.join(names)}; set {key}")
    number = 0
    top = sorted({name.split(".")[0] for name in wanted.values()})
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=top):
        for row in batch.to_pylist():
            number += 1
            yield f"{path} row {number}", row


def _json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path} line {number}"
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place} is not JSON ({error}); one object a line") from None
            if not isinstance(row, dict):
                raise UserError(f"{place} is not a JSON object; one object a line")
            yield place, row


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
