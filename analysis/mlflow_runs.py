"""Runs from an MLflow tracking server or database; the only file of the analysis that opens it."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from analysis.columns import ACCURACY, CORE
from analysis.parallel import in_processes
from analysis.records import Run
from specrl.errors import RunError, UserError
from specrl.telemetry.jsonl import STEP_MARK
from specrl.telemetry.mlflow_client import SQLITE, connect
from specrl.telemetry.mlflow_run import KEY_TAG, absolute_uri

TIMEOUT_S = 30.0
RUNS_PER_PAGE = 1000
REQUESTS_AT_ONCE = 8
STATES = {"FINISHED": "finished", "KILLED": "interrupted", "RUNNING": None, "SCHEDULED": None}
PARAM_IS_TAG = "changed."
VIEWS = "spec/"

Point = tuple[str, int, int, float | None]
"""Metric, step, milliseconds, value (None is not a number)."""


T = TypeVar("T")


class MlflowRuns:
    """The specrl runs at a tracking URI. Methods raise `RunError` when MLflow fails."""

    def __init__(self, uri: str) -> None:
        """Raises `UserError` for a sqlite file that is not there or has no MLflow tables."""
        self.uri = absolute_uri(uri)
        file = Path(self.uri.removeprefix(SQLITE))
        if self.uri.startswith(SQLITE) and not file.is_file():
            raise UserError(f"--mlflow {uri}: no such file; name the one that the runs went to")
        if self.uri.startswith(SQLITE) and not _asked(uri, lambda: _has_tables(file)):
            raise UserError(f"--mlflow {uri}: no MLflow database; name the one with the runs")
        self._client = _asked(uri, lambda: connect(self.uri, TIMEOUT_S))

    def read(self, since_s: float = 0.0) -> list[tuple[str, Run]]:
        """(MLflow experiment, run) of every specrl run that began at or after `since_s`."""
        return _asked(self.uri, lambda: self._read(since_s))

    def listed(self) -> list[tuple[str, float]]:
        """(MLflow experiment, Unix time of its start) of every specrl run."""
        return _asked(
            self.uri,
            lambda: [(name, run.info.start_time / 1000) for name, run in self._found(0.0)],
        )

    def views(self, runs: Sequence[Run]) -> list[pd.DataFrame]:
        """Every `spec/*` metric of each run's steps."""
        ids = [run.source.rpartition("#")[2] for run in runs]
        return _asked(self.uri, lambda: self._histories(ids, None))

    def _read(self, since_s: float) -> list[tuple[str, Run]]:
        found = self._found(since_s)
        frames = self._histories([run.info.run_id for _, run in found], CORE)
        return [
            (name, self._run(run, frame)) for (name, run), frame in zip(found, frames, strict=True)
        ]

    def _found(self, since_s: float) -> list[tuple[str, Any]]:
        names = {e.experiment_id: e.name for e in self._pages("search_experiments")}
        wanted = f"tags.`{KEY_TAG}` != '' and attributes.start_time >= {int(since_s * 1000)}"
        found = self._pages("search_runs", list(names), wanted) if names else []
        return [(names[run.info.experiment_id], run) for run in found]

    def _pages(self, method: str, *arguments: Any) -> list[Any]:
        call, items, token = getattr(self._client, method), [], None
        while token != "":
            page = call(*arguments, max_results=RUNS_PER_PAGE, page_token=token)
            items += page
            token = page.token or ""
        return items

    def _run(self, run: Any, frame: pd.DataFrame) -> Run:
        tags: Mapping[str, str] = run.data.tags
        changed = {
            key.removeprefix(PARAM_IS_TAG): value
            for key, value in tags.items()
            if key.startswith(PARAM_IS_TAG)
        }
        folder = tags.get("run_folder") or run.info.run_name
        state = run.info.status
        return Run(
            name=Path(folder).name,
            source=f"{self.uri}#{run.info.run_id}",
            key=tags[KEY_TAG],
            config={**run.data.params, **changed},
            steps=frame[frame[STEP_MARK].notna()],
            evaluations=frame[frame[ACCURACY].notna()],
            status=tags.get("failure", "failed") if state == "FAILED" else STATES.get(state),
            created_s=run.info.start_time / 1000,
            git_commit=tags.get("git_commit"),
            machine=tags.get("machine", ""),
            overrides=tuple(tags.get("overrides", "").split()),
        )

    def _histories(self, ids: Sequence[str], names: Sequence[str] | None) -> list[pd.DataFrame]:
        """[steps, names] of each run, None: every `spec/*`; of repeated steps the first counts.

        A sqlite file is read as one: MLflow's client asks once per run and metric, and makes an
        object of every point (benchmarks/README.md has what that costs).
        """
        if self.uri.startswith(SQLITE):
            file = Path(self.uri.removeprefix(SQLITE))
            return in_processes(lambda run_id: _from_sqlite(file, run_id, names), ids)
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            return [self._from_server(run_id, names, pool) for run_id in ids]

    def _from_server(
        self, run_id: str, names: Sequence[str] | None, pool: ThreadPoolExecutor
    ) -> pd.DataFrame:
        known = self._client.get_run(run_id).data.metrics
        wanted = [name for name in known if (name in names if names else _is_view(name))]
        histories = pool.map(lambda name: self._client.get_metric_history(run_id, name), wanted)
        points = [(p.key, p.step, p.timestamp, p.value) for points in histories for p in points]
        return _wide(points, names)


def _from_sqlite(file: Path, run_id: str, names: Sequence[str] | None) -> pd.DataFrame:
    """From MLflow's table `metrics`; opened for each run, since processes cannot share it."""
    query = (
        "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics "
        "WHERE run_uuid = ? AND "
    )
    chosen = f"key IN ({', '.join('?' * len(names))})" if names else f"key LIKE '{VIEWS}%'"
    with closing(_opened(file)) as database:
        points = database.execute(query + chosen, [run_id, *(names or ())]).fetchall()
    return _wide(points, names)


def _opened(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _is_view(name: str) -> bool:
    return name.startswith(VIEWS)


def _has_tables(file: Path) -> bool:
    """Asked before MLflow opens the file, since it would write its tables into it."""
    with closing(_opened(file)) as database:
        query = "SELECT count(*) FROM sqlite_master WHERE name = 'experiments'"
        return bool(database.execute(query).fetchone()[0])


def _wide(points: Sequence[Point], names: Sequence[str] | None) -> pd.DataFrame:
    """A row a step, a column a metric, NaN where there is no point."""
    keys, steps, times, values = zip(*points, strict=True) if points else ((), (), (), ())
    columns = list(names or dict.fromkeys(keys))
    index, row_P = np.unique(np.asarray(steps, int), return_inverse=True)
    place = {name: number for number, name in enumerate(columns)}
    column_P = np.array([place[key] for key in keys], int)
    latest_first_P = np.argsort(np.asarray(times, float), kind="stable")[::-1]
    table = np.full((len(index), len(columns)), np.nan)
    # Of points for one place the last assignment stays: the earliest.
    table[row_P[latest_first_P], column_P[latest_first_P]] = np.asarray(values, float)[
        latest_first_P
    ]
    return pd.DataFrame(table, columns=columns, index=pd.Index(index, name="step"))


def _asked(uri: str, question: Callable[[], T]) -> T:
    try:
        return question()
    except (RunError, UserError):
        raise
    # MLflow, its HTTP client and its database raise types of their own, all with one meaning here.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunError(f"MLflow at {uri} failed: {reason}; check the address") from error
