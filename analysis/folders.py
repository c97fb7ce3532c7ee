"""Runs from their folders (run.json and metrics.jsonl)."""

import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import json as arrow_json

from analysis.columns import ACCURACY, CORE
from analysis.records import Run
from specrl.errors import UserError
from specrl.telemetry.jsonl import (
    INFO_FILE,
    METRICS_FILE,
    STEP_MARK,
    RunInfo,
    read_from,
    read_info,
    read_run,
)
from specrl.telemetry.mlflow_run import flatten

SKIPPED = {"checkpoints", "logs", ".git", ".venv"}
BLOCK_BYTES = 1 << 24
LARGEST_BYTES = 1 << 30
"""A run of 100,000 steps stays below it; what is larger is no record of a run."""

DAMAGED = (ValueError, TypeError, KeyError, NotImplementedError)
"""What reading all lines at once raises where one is damaged; Arrow's errors are among them."""


def find_folders(roots: Sequence[Path]) -> list[Path]:
    """Run folders at or below each root, in order. Raises `UserError` for a root without any."""
    found: dict[Path, None] = {}
    for root in roots:
        if not root.is_dir():
            raise UserError(f"--runs {root}: no such folder; name one with run folders in it")
        below = list(_below(root))
        if not below:
            raise UserError(
                f"--runs {root}: no run in it ({INFO_FILE} or {METRICS_FILE}); "
                "name a run folder or one that holds some"
            )
        found |= dict.fromkeys(path.resolve() for path in below)
    return list(found)


def read_folder(folder: Path) -> Run:
    """The run of a folder, without its acceptance views.

    Whatever its two files are, it reads what can be read; `notes` of the run say what cannot.
    """
    info, notes = _whole_info(folder)
    frame, damage = metrics_frame(folder, CORE)
    return Run(
        name=folder.name,
        source=str(folder),
        key=info.key if info else str(folder),
        config=flatten(info.config) if info else {},
        steps=frame[frame[STEP_MARK].notna()],
        evaluations=frame[frame[ACCURACY].notna()],
        status=info.status if info else None,
        created_s=info.created_s if info else _changed_s(folder),
        git_commit=info.git_commit if info else None,
        machine=info.machine if info else "",
        overrides=tuple(info.overrides) if info else (),
        notes=(*notes, *damage),
    )


def read_views(folder: Path) -> pd.DataFrame:
    """Every `spec/*` metric of a run's steps; none where they cannot be read any more."""
    path = folder / METRICS_FILE
    if _unreadable(path) or not path.exists():
        return _nothing(())
    try:
        return _fast_frame(_complete_lines(path), None).filter(regex="^spec/")
    except DAMAGED:
        return _careful_frame(folder, None).filter(regex="^spec/")


def metrics_frame(folder: Path, names: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """[steps, names], NaN where a step lacks a metric; and what could not be read, in words."""
    path = folder / METRICS_FILE
    problem = _unreadable(path)
    if problem:
        return _nothing(names), [problem]
    if not path.exists():
        return _nothing(names), []
    try:
        return _fast_frame(_complete_lines(path), names), []
    except DAMAGED:
        return _careful_frame(folder, names), _damaged_lines(path)


def _whole_info(folder: Path) -> tuple[RunInfo | None, list[str]]:
    """run.json, None also where a value is of another kind than what specrl writes; and why."""
    problem = _unreadable(folder / INFO_FILE)
    if problem:
        return None, [problem]
    info = read_info(folder)
    if info is None:
        return None, []
    whole = (
        isinstance(info.config, Mapping)
        and isinstance(info.created_s, int | float)
        and math.isfinite(info.created_s)
        and isinstance(info.overrides, list)
        and all(isinstance(text, str) for text in (info.key, info.machine, *info.overrides))
        and isinstance(info.status, str | None)
        and isinstance(info.git_commit, str | None)
    )
    return info if whole else None, []


def _unreadable(path: Path) -> str:
    """Why a file that is there cannot be read, "" where it can or is not there."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return f"{path.name} is no file"
        if found.st_size > LARGEST_BYTES:
            return f"{path.name} has {found.st_size} bytes, more than {LARGEST_BYTES}: not read"
        with path.open("rb"):
            return ""
    except FileNotFoundError:
        return f"{path.name} is a link to nothing" if path.is_symlink() else ""
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"


def _damaged_lines(path: Path) -> list[str]:
    lines = sum(bool(line.strip()) for line in _complete_lines(path).splitlines())
    damaged = lines - len(read_from(path, 0)[0])
    return [f"{damaged} damaged line(s) of {lines} in {path.name} left out"] if damaged else []


def _complete_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]


def _fast_frame(data: bytes, names: Sequence[str] | None) -> pd.DataFrame:
    """`names` None reads every metric. Raises one of `DAMAGED` for a damaged line."""
    if not data.strip():
        return _nothing(names or ())
    parse = arrow_json.ParseOptions()
    if names is not None:
        metrics = pa.struct([(name, pa.float64()) for name in names])
        odd = pa.struct([(name, pa.string()) for name in names])
        schema = pa.schema([("step", pa.int64()), ("metrics", metrics), ("non_finite", odd)])
        parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = arrow_json.ReadOptions(use_threads=False, block_size=max(BLOCK_BYTES, len(data)))
    table = arrow_json.read_json(pa.BufferReader(data), read_options=read, parse_options=parse)
    if table["step"].null_count:
        raise ValueError("a line without a step")
    frame = _columns_of(table, "metrics").astype(float)
    frame.index = pd.Index(table["step"].to_pandas(), name="step")
    if "non_finite" in table.column_names and table["non_finite"].null_count < table.num_rows:
        odd_values = _columns_of(table, "non_finite").reindex(columns=frame.columns)
        odd_values.index = frame.index
        frame = frame.where(odd_values.isna(), odd_values.astype(float))
    return _one_row_a_step(frame)


def _nothing(names: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(columns=list(names), index=pd.Index([], name="step"), dtype=float)


def _columns_of(table: pa.Table, column: str) -> pd.DataFrame:
    fields = [field.name for field in table.schema.field(column).type]
    flat = pa.Table.from_arrays(table[column].combine_chunks().flatten(), names=fields)
    frame: pd.DataFrame = flat.to_pandas()
    return frame


def _careful_frame(folder: Path, names: Sequence[str] | None) -> pd.DataFrame:
    records = read_run(folder).records
    frame = pd.DataFrame([r.metrics for r in records], index=[r.step for r in records], dtype=float)
    frame.index.name = "step"
    return frame if names is None else frame.reindex(columns=list(names))


def _one_row_a_step(frame: pd.DataFrame) -> pd.DataFrame:
    """As `read_run`: the last line of a step counts, joined with an evaluation before it."""
    if frame.index.is_unique:
        return frame.sort_index()
    rows: dict[int, pd.Series] = {}
    for step, row in frame.iterrows():
        earlier = rows.get(step)
        if earlier is not None and pd.isna(earlier[STEP_MARK]):
            row = row.combine_first(earlier)
        rows[step] = row
    joined = pd.DataFrame(rows).T.sort_index()
    joined.index.name = "step"
    return joined


def _below(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED)
        if INFO_FILE in files or METRICS_FILE in files:
            folders.clear()
            yield Path(folder)


def _changed_s(folder: Path) -> float:
    try:
        return (folder / METRICS_FILE).stat().st_mtime
    except OSError:
        return 0.0
