"""Runs from an MLflow tracking server or database; the only file of the analysis that opens it."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from analysis.columns import ACCURACY, CORE
from analysis.records import Run
from specrl.errors import RunError, UserError
from specrl.telemetry.jsonl import STEP_MARK
from specrl.telemetry.mlflow_client import SQLITE, connect
from specrl.telemetry.mlflow_run import KEY_TAG, absolute_uri

TIMEOUT_S = 30.0
RUNS_PER_PAGE = 1000
RUNS_PER_QUERY = 50
STATES = {"FINISHED": "finished", "KILLED": "interrupted", "RUNNING": None, "SCHEDULED": None}
PARAM_IS_TAG = "changed."


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

    def views(self, run: Run) -> pd.DataFrame:
        """Every `spec/*` metric of a run's steps."""
        run_id = run.source.rpartition("#")[2]
        return _asked(self.uri, lambda: self._views(run_id))

    def _read(self, since_s: float) -> list[tuple[str, Run]]:
        names = {e.experiment_id: e.name for e in self._pages("search_experiments")}
        wanted = f"tags.`{KEY_TAG}` != '' and attributes.start_time >= {int(since_s * 1000)}"
        found = self._pages("search_runs", list(names), wanted) if names else []
        ids = [run.info.run_id for run in found]
        frames: dict[str, pd.DataFrame] = {}
        for start in range(0, len(ids), RUNS_PER_QUERY):
            frames |= self._histories(ids[start : start + RUNS_PER_QUERY], CORE)
        return [
            (names[run.info.experiment_id], self._run(run, frames[run.info.run_id]))
            for run in found
        ]

    def _views(self, run_id: str) -> pd.DataFrame:
        latest = self._client.get_run(run_id).data.metrics
        names = [name for name in latest if name.startswith("spec/")]
        return self._histories([run_id], names)[run_id]

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

    def _histories(self, ids: Sequence[str], names: Sequence[str]) -> dict[str, pd.DataFrame]:
        """[steps, names] of each run; of a step logged twice the first value counts."""
        store = self._client._tracking_client.store
        if hasattr(store, "ManagedSessionMaker"):
            points = _from_database(store, ids, names)
        else:
            points = self._from_server(ids, names)
        frames = dict(tuple(points.groupby("run", sort=False)))
        return {run_id: _wide(frames.get(run_id), names) for run_id in ids}

    def _from_server(self, ids: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
        rows = [
            (run_id, name, point.step, point.timestamp, point.value)
            for run_id in ids
            for name in set(names) & self._client.get_run(run_id).data.metrics.keys()
            for point in self._client.get_metric_history(run_id, name)
        ]
        return pd.DataFrame(rows, columns=["run", "name", "step", "time", "value"])


def _has_tables(file: Path) -> bool:
    """Asked before MLflow opens the file, since it would write its tables into it."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
        query = "SELECT count(*) FROM sqlite_master WHERE name = 'experiments'"
        return bool(database.execute(query).fetchone()[0])


def _from_database(store: Any, ids: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
    """Every point in one query: MLflow's client asks once per run and metric."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric as Point

    with store.ManagedSessionMaker() as session:
        place, value = (Point.run_uuid, Point.key, Point.step, Point.timestamp), Point.value
        chosen = Point.run_uuid.in_(list(ids)), Point.key.in_(list(names))
        rows = session.query(*place, value, Point.is_nan).filter(*chosen).all()
    frame = pd.DataFrame(rows, columns=["run", "name", "step", "time", "value", "is_nan"])
    frame["value"] = frame["value"].astype(float).mask(frame["is_nan"].astype(bool))
    return frame.drop(columns="is_nan")


def _wide(points: pd.DataFrame | None, names: Sequence[str]) -> pd.DataFrame:
    if points is None:
        return pd.DataFrame(columns=list(names), index=pd.Index([], name="step"), dtype=float)
    first = points.sort_values("time", kind="stable").drop_duplicates(["name", "step"])
    wide = first.pivot(index="step", columns="name", values="value")
    wide.columns.name = None
    return wide.reindex(columns=list(names)).sort_index()


def _asked(uri: str, question: Callable[[], T]) -> T:
    try:
        return question()
    except (RunError, UserError):
        raise
    # MLflow, its HTTP client and its database raise types of their own, all with one meaning here.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunError(f"MLflow at {uri} failed: {reason}; check the address") from error
