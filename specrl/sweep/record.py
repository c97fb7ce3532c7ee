"""The record of a sweep, from which its state is told and its reruns are recognised."""

import hashlib
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from specrl.durable import write_atomically
from specrl.sweep.points import Point

FOLDER = "sweeps"


@dataclass(frozen=True)
class SweepRecord:
    """`<output_dir>/sweeps/<signature>.json`: the same points are the same sweep.

    `key` names it across tracking servers and folders, `overrides` is what was typed, `created_s`
    and `launched_s` (the last time) are Unix seconds, `mlflow_parent` is the MLflow run that the
    points' runs are children of.
    """

    signature: str
    key: str
    overrides: tuple[str, ...]
    points: tuple[Point, ...]
    created_s: float
    launched_s: float
    mlflow_parent: str | None = None


def sweep_signature(points: Sequence[Point]) -> str:
    """Eight hex digits of the run folders' names, in any order."""
    names = sorted({point.folder.name for point in points})
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]


def record_path(points: Sequence[Point]) -> Path:
    """Where the record of these points is, beside their run folders."""
    return points[0].folder.parent / FOLDER / f"{sweep_signature(points)}.json"


def opened(points: Sequence[Point], overrides: Sequence[str]) -> SweepRecord:
    """The record of an earlier launch of the same points, or a new one; nothing is written."""
    now_s = time.time()
    known = read_record(record_path(points))
    fresh = SweepRecord(
        signature=sweep_signature(points),
        key=uuid.uuid4().hex,
        overrides=tuple(overrides),
        points=tuple(points),
        created_s=now_s,
        launched_s=now_s,
    )
    if known is None:
        return fresh
    return replace(
        fresh, key=known.key, created_s=known.created_s, mlflow_parent=known.mlflow_parent
    )


def save_record(record: SweepRecord) -> Path:
    """Writes it beside the run folders."""
    path = record_path(record.points)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(asdict(record), indent=1, default=_shown) + "\n")
    return path


def read_record(path: Path) -> SweepRecord | None:
    """None where there is none, or a damaged one. Folders are read as siblings of `sweeps/`."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        points = tuple(_point(point, path.parent.parent) for point in values.pop("points"))
        overrides = tuple(map(str, values.pop("overrides")))
        created_s, launched_s = (float(values.pop(name)) for name in ("created_s", "launched_s"))
        record = SweepRecord(
            points=points,
            overrides=overrides,
            created_s=created_s,
            launched_s=launched_s,
            **values,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return record if points else None


def records_in(output_dir: Path) -> list[SweepRecord]:
    """Every sweep below the folder, the last launched one first."""
    found = map(read_record, _files(output_dir))
    return sorted((record for record in found if record), key=lambda r: -r.launched_s)


def damaged_in(output_dir: Path) -> list[Path]:
    """The records of sweeps below the folder that cannot be read."""
    return [path for path in _files(output_dir) if read_record(path) is None]


def _files(output_dir: Path) -> list[Path]:
    return sorted((output_dir / FOLDER).glob("*.json"))


def _point(values: dict[str, Any], output_dir: Path) -> Point:
    folder = Path(values["folder"])
    moved = output_dir / folder.name
    overrides = tuple(map(str, values["overrides"]))
    return Point(overrides, str(values["drafter"]), moved if moved.is_dir() else folder)


def _shown(value: object) -> str:
    assert isinstance(value, Path), value
    return str(value)
