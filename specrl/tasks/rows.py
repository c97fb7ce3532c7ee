"""Rows of parquet and JSON-lines files, local or of a hub data set."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specrl.errors import UserError
from specrl.hub import hub_snapshot, looks_local

SUFFIXES = (".parquet", ".jsonl")
_HUB_SOURCE = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?::(?P<folder>[\w./-]+))?"
)
_BATCH_ROWS = 8192

Row = tuple[str, Mapping[str, Any]]
"""Place (file and row, for error messages) and values."""


def split_files(names: Iterable[str], split: str) -> list[str]:
    """The data files of one split among a data set's file names.

    Files in a folder of that name or whose own name begins with it; when none is, and the split
    is "train", all of them (a data set of one unnamed part).
    """
    data = sorted(name for name in names if name.endswith(SUFFIXES))
    named = re.compile(rf"(?:^|/){re.escape(split)}(?:[-._/]|$)")
    chosen = [name for name in data if named.search(name)]
    return chosen or (data if split == "train" else [])


def data_files(
    key: str, source: str, split: str, expected: str, revision: str | None = None
) -> list[Path]:
    """The files of `source`: a local .parquet or .jsonl file, or those of a hub data set's split.

    A hub source is `owner/name[@revision][:folder]`; `revision` counts where it has none. `key` is
    the config key of the source and `expected` what a file must hold, for the `UserError`.
    """
    fix = _fix(key, expected)
    local = local_file(key, source, expected)
    if local is not None:
        return [local]
    hub = _HUB_SOURCE.fullmatch(source)
    assert hub is not None, source
    folder = f"{hub['folder'].strip('/')}/" if hub["folder"] else ""
    root = hub_snapshot(
        hub["repo"],
        repo_type="dataset",
        revision=hub["revision"] or revision,
        patterns=[f"{folder}*{suffix}" for suffix in SUFFIXES],
        fix=fix,
    )
    found = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
    chosen = split_files((name for name in found if name.startswith(folder)), split)
    if not chosen:
        raise UserError(f"{key}={source} has no files of split {split}; {fix}")
    return [root / name for name in chosen]


def local_file(key: str, source: str, expected: str) -> Path | None:
    """The file that `source` is, None for a hub data set. Raises `UserError` as `data_files`."""
    hub = _HUB_SOURCE.fullmatch(source)
    if hub and not (looks_local(source) and ":" not in source and "@" not in source):
        return None
    path = Path(source).expanduser()
    if not path.is_file():
        raise UserError(f"{key}={source} is neither a file nor a hub id; {_fix(key, expected)}")
    if path.suffix not in SUFFIXES:
        raise UserError(f"{key}={source} is not a .parquet or .jsonl file; {_fix(key, expected)}")
    return path


def _fix(key: str, expected: str) -> str:
    return f"give a local file instead: {key}=/path/to/file.parquet (or .jsonl) with {expected}"


def parquet_rows(path: Path, wanted: Mapping[str, str]) -> Iterator[Row]:
    """Rows with the top-level columns of `wanted`, which maps config keys to (nested) columns.

    Raises `UserError` for a column that is not there.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a readable parquet file ({error})") from None
    names = file.schema_arrow.names
    for key, name in wanted.items():
        if name.split(".")[0] not in names:
            raise UserError(f"{path} has no column {name}, only {', '.join(names)}; set {key}")
    number = 0
    top = sorted({name.split(".")[0] for name in wanted.values()}) or names
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=top):
        for row in batch.to_pylist():
            number += 1
            yield f"{path} row {number}", row


def json_rows(path: Path) -> Iterator[Row]:
    """Rows of a JSON-lines file. Raises `UserError` for a line that is no object."""
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
