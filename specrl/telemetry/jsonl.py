"""The local record of a run: metrics.jsonl (one line a step) and run.json (what the run is).

Everything else (MLflow, replay, comparison, analysis) is derived from these two files.
"""

import json
import math
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import specrl
from specrl.errors import UserError
from specrl.telemetry.sink import Sink
from specrl.telemetry.source import git_commit, machine
from specrl.types import Metrics

METRICS_FILE = "metrics.jsonl"
INFO_FILE = "run.json"
STEP_MARK = "time/step_s"
"""In every record of an RL step; a record without it holds an evaluation."""


@dataclass(frozen=True)
class StepRecord:
    """One closed step. `time_s` is Unix time; metrics may hold NaN and infinities."""

    step: int
    time_s: float
    metrics: Metrics


@dataclass(frozen=True)
class RunInfo:
    """What a run is. `key` names it across tracking servers; times are Unix seconds.

    `previous_key` is the run that a fresh start in the same folder replaced. `status` is None while
    the run goes on and after it was killed. `machine` is what its speed depends on, "" in records
    older than it.
    """

    key: str
    previous_key: str | None
    created_s: float
    config: Mapping[str, Any]
    overrides: Sequence[str]
    tags: Mapping[str, str]
    specrl_version: str
    git_commit: str | None
    status: str | None = None
    finished_s: float | None = None
    machine: str = ""


@dataclass(frozen=True)
class RunLog:
    """A run as its folder tells it; records are in order of step, one per step."""

    info: RunInfo | None
    records: list[StepRecord]


def read_run(folder: Path) -> RunLog:
    """Reads a run folder, whatever a kill left of it; damaged lines are left out.

    Of a step that is there twice the last line counts, joined with an evaluation alone before it.
    Raises `UserError` when the folder holds neither file.
    """
    metrics_path = folder / METRICS_FILE
    info = read_info(folder)
    if info is None and not metrics_path.exists():
        raise UserError(
            f"{folder} is not a run folder: it has neither {INFO_FILE} nor {METRICS_FILE}; "
            "name outputs/<run>"
        )
    records, _ = read_from(metrics_path, 0)
    by_step: dict[int, StepRecord] = {}
    for record in records:
        earlier = by_step.get(record.step)
        if earlier is not None and STEP_MARK not in earlier.metrics:
            record = replace(record, metrics={**earlier.metrics, **record.metrics})
        by_step[record.step] = record
    return RunLog(info, [by_step[step] for step in sorted(by_step)])


def read_info(folder: Path) -> RunInfo | None:
    """run.json of the folder; None when missing or damaged."""
    try:
        return RunInfo(**json.loads((folder / INFO_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def read_from(path: Path, offset: int) -> tuple[list[StepRecord], int]:
    """Records in complete lines after byte `offset`, and the offset to go on from."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    decoded = (_decode(line) for line in data[:end].splitlines())
    return [record for record in decoded if record is not None], offset + end


class JsonlSink(Sink):
    """Writes metrics.jsonl, flushed at every step, and run.json.

    `resume_step` None starts afresh and the run gets a new key. A number goes on after that step
    under the same key: later lines, which the resumed run writes again, are dropped. -1 goes on
    before the first step. Where no step is kept, the earlier file stays as metrics.jsonl.old.
    """

    def __init__(
        self,
        run_folder: Path,
        *,
        config: Mapping[str, Any],
        overrides: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        resume_step: int | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = run_folder
        self._config = config
        self._overrides = list(overrides)
        self._tags = dict(tags or {})
        self._resume_step = resume_step
        self._wall_clock = wall_clock
        self._info: RunInfo | None = None
        self._file: IO[str] | None = None

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / METRICS_FILE
        from_the_start = self._resume_step is None or self._resume_step < 0
        if from_the_start and path.exists() and path.stat().st_size:
            os.replace(path, path.with_name(METRICS_FILE + ".old"))
        if self._resume_step is not None:
            _keep_until(path, self._resume_step)
        self._save(self._describe(read_info(self._folder)))
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Metrics) -> None:
        assert self._file is not None, "log before start"
        self._file.write(_encode(StepRecord(step, self._wall_clock(), metrics)))
        self._file.flush()

    def finish(self, status: str) -> None:
        assert self._file is not None, "finish before start"
        assert self._info is not None, "finish before start"
        self._file.close()
        self._save(replace(self._info, status=status, finished_s=self._wall_clock()))

    def _describe(self, previous: RunInfo | None) -> RunInfo:
        same = previous if self._resume_step is not None else None
        fresh_key = uuid.uuid4().hex
        replaced = previous.key if previous and not same else None
        return RunInfo(
            key=same.key if same else fresh_key,
            previous_key=same.previous_key if same else replaced,
            created_s=same.created_s if same else self._wall_clock(),
            config=self._config,
            overrides=self._overrides,
            tags=self._tags,
            specrl_version=specrl.__version__,
            git_commit=git_commit(Path(specrl.__file__).parent),
            machine=machine(),
        )

    def _save(self, info: RunInfo) -> None:
        self._info = info
        text = json.dumps(asdict(info), indent=2, default=str)
        _write_atomically(self._folder / INFO_FILE, [text + "\n"])


def _keep_until(path: Path, last_step: int) -> None:
    records, _ = read_from(path, 0)
    kept = {record.step: record for record in records if record.step <= last_step}
    # The evaluation after the last update, when a finished run goes on: no step comes to repeat it.
    after = [r for r in records if r.step == last_step + 1 and STEP_MARK not in r.metrics]
    kept |= {record.step: record for record in after}
    _write_atomically(path, (_encode(kept[step]) for step in sorted(kept)))


def _write_atomically(path: Path, lines: Iterable[str]) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _encode(record: StepRecord) -> str:
    # JSON has no NaN: such a metric is null, and `non_finite` says which kind it was.
    finite = {
        name: value if math.isfinite(value) else None for name, value in record.metrics.items()
    }
    odd = {name: str(value) for name, value in record.metrics.items() if not math.isfinite(value)}
    line: dict[str, Any] = {"step": record.step, "time": record.time_s, "metrics": finite}
    if odd:
        line["non_finite"] = odd
    return json.dumps(line, allow_nan=False) + "\n"


def _decode(line: bytes) -> StepRecord | None:
    try:
        fields = json.loads(line)
        metrics = fields["metrics"] | fields.get("non_finite", {})
        values = {name: float(value) for name, value in metrics.items()}
        return StepRecord(int(fields["step"]), float(fields["time"]), values)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
