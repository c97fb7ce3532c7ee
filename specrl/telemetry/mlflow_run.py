"""One MLflow run that mirrors a run folder. The only file that imports mlflow, and only when used.

The run is found again by a tag that holds the folder's run key, so that resuming, replaying and
retrying all continue the same MLflow run. MLflow cannot replace a metric and lists a step logged
twice as two points: steps it already has are left as they are (the first values stay).
"""

import json
import logging
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from specrl.errors import RunError
from specrl.telemetry.jsonl import INFO_FILE, STEP_MARK, RunInfo, StepRecord, read_info
from specrl.types import Metrics

KEY_TAG = "specrl.run_key"
EVALUATION = "eval/"
EVALUATION_MARK = "eval/accuracy"
METRICS_PER_BATCH = 1000  # MLflow's limits of one log_batch call
ENTITIES_PER_BATCH = 100
SQLITE = "sqlite:///"


class MlflowRun:
    """An open run. Methods raise whatever MLflow raises and block as long as it does."""

    def __init__(
        self, uri: str, experiment: str, run_folder: Path, run_id: str | None, timeout_s: float
    ) -> None:
        """Finds the folder's run or creates it; sets it RUNNING, writes params, tags and config.

        `run_id` is tried first; None, or one that the server lacks, leaves it to the run key.
        """
        info = read_info(run_folder)
        if info is None:
            raise RunError(f"{run_folder / INFO_FILE} is missing or damaged; MLflow needs it")
        self._uri = uri
        self._client = _connect(uri, timeout_s)
        self._monitor: Any = None
        experiment_id = _experiment_id(self._client, uri, experiment)
        run = _existing(self._client, run_id) or _by_key(self._client, experiment_id, info.key)
        if run is None:
            run = self._client.create_run(
                experiment_id,
                start_time=int(info.created_s * 1000),
                tags={KEY_TAG: info.key},
                run_name=run_folder.name,
            )
        self.id: str = run.info.run_id
        if run.info.status != "RUNNING":
            self._client.update_run(self.id, status="RUNNING")
        self._end_replaced(experiment_id, info.previous_key)
        self.steps = self._steps_with(STEP_MARK)
        self._evaluated = self._steps_with(EVALUATION_MARK)
        self._describe(info, known=run.data.params)

    def upload_config(self, run_folder: Path) -> None:
        """The composed config as artifact config.yaml."""
        info = read_info(run_folder)
        config = {} if info is None else info.config
        self._client.log_text(self.id, yaml.safe_dump(dict(config), sort_keys=False), "config.yaml")

    def watch_system(self) -> None:
        """Logs CPU, memory and GPU use until `end`, from a thread of MLflow's own."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(self.id, resume_logging=True, tracking_uri=self._uri)
        self._monitor.start()

    def write(self, records: Sequence[StepRecord]) -> int:
        """Writes the records whose steps the run did not have when opened; returns their number.

        Safe to repeat after an error: MLflow's stores keep one copy of an identical point.
        """
        from mlflow.entities import Metric

        new = [(record, metrics) for record in records if (metrics := self._missing(record))]
        points = [
            Metric(_clean(name), value, int(record.time_s * 1000), record.step)
            for record, metrics in new
            for name, value in _mark_last(metrics)
        ]
        for batch in _batches(points, METRICS_PER_BATCH):
            self._client.log_batch(self.id, metrics=batch)
        return len(new)

    def end(self, status: str | None, time_s: float) -> None:
        """Closes the run. None is a run that was killed."""
        if self._monitor is not None:
            self._monitor.finish()
        if status is not None and status.startswith("failed"):
            self._client.set_tag(self.id, "failure", status)
        self._client.set_terminated(self.id, _mlflow_status(status), int(time_s * 1000))

    def _steps_with(self, name: str) -> set[int]:
        return {point.step for point in self._client.get_metric_history(self.id, name)}

    def _missing(self, record: StepRecord) -> Metrics:
        """What the run lacks of the record: the last evaluation has no step until a run goes on."""
        if record.step in self.steps:
            return {}
        if record.step not in self._evaluated:
            return record.metrics
        return {k: v for k, v in record.metrics.items() if not k.startswith(EVALUATION)}

    def _end_replaced(self, experiment_id: str, key: str | None) -> None:
        replaced = _by_key(self._client, experiment_id, key) if key else None
        if replaced is not None and replaced.info.status == "RUNNING":
            self._client.set_terminated(replaced.info.run_id, "KILLED")

    def _describe(self, info: RunInfo, known: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        params = flatten(info.config)
        tags = run_tags(info)
        # MLflow refuses to change a param: what a resumed run changed is a tag instead.
        tags |= {f"changed.{k}": v for k, v in params.items() if k in known and known[k] != v}
        fresh = [Param(k, v) for k, v in params.items() if k not in known]
        for params_batch in _batches(fresh, ENTITIES_PER_BATCH):
            self._client.log_batch(self.id, params=params_batch)
        for tags_batch in _batches([RunTag(k, v) for k, v in tags.items()], ENTITIES_PER_BATCH):
            self._client.log_batch(self.id, tags=tags_batch)


def absolute_uri(uri: str) -> str:
    """A sqlite file relative to the current folder gets its full path; other URIs stay."""
    if not uri.startswith(SQLITE) or uri == SQLITE:
        return uri
    return SQLITE + str(Path(uri.removeprefix(SQLITE)).absolute())


def ui_command(uri: str) -> str:
    """What to type, or open, to see the runs at `uri`."""
    if uri.startswith(("http://", "https://")):
        return f"open {uri}"
    command = "mlflow" if shutil.which("mlflow") else Path(sys.executable).with_name("mlflow")
    return f"{command} ui --backend-store-uri {absolute_uri(uri)}"


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested config as dotted params; lists as JSON, None as null, values cut at MLflow's 6000."""
    params: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            params |= flatten(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            params[_clean(f"{prefix}{key}")] = text[:6000]
    return params


def run_tags(info: RunInfo) -> dict[str, str]:
    """Overrides by key and as one line, version, commit, and the user's tags, which win."""
    pairs = (override.lstrip("+~").partition("=") for override in info.overrides)
    tags = {_clean(key): value or "null" for key, _, value in pairs if key}
    tags["overrides"] = " ".join(info.overrides)
    tags["specrl.version"] = info.specrl_version
    if info.git_commit:
        tags["git_commit"] = info.git_commit
    return tags | {_clean(key): value for key, value in info.tags.items()}


def _connect(uri: str, timeout_s: float) -> Any:
    # Read by MLflow at import or per request; a user's own settings stay.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(max(1, math.ceil(timeout_s))))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if _no_mlflow_retries not in logging.getLogger("urllib3.connectionpool").filters:
        logging.getLogger("urllib3.connectionpool").addFilter(_no_mlflow_retries)
    if uri.startswith(SQLITE):
        Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(tracking_uri=uri)


def _no_mlflow_retries(record: logging.LogRecord) -> bool:
    return "/api/2.0/mlflow" not in record.getMessage()


def _experiment_id(client: Any, uri: str, name: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=_artifacts(uri, name)))
        except MlflowException:
            # Another run of a sweep may have created it in between; anything else raises again.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise RunError(
            f"MLflow experiment {name!r} is deleted; "
            f"restore it (mlflow experiments restore -x {found.experiment_id}) or use another name"
        )
    return str(found.experiment_id)


def _artifacts(uri: str, experiment: str) -> str | None:
    # Beside the sqlite file: MLflow's default depends on the folder the run was started from.
    if not uri.startswith(SQLITE):
        return None
    return (Path(uri.removeprefix(SQLITE)).parent / "mlartifacts" / experiment).as_uri()


def _existing(client: Any, run_id: str | None) -> Any:
    from mlflow.exceptions import MlflowException

    if run_id is None:
        return None
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


def _by_key(client: Any, experiment_id: str, key: str) -> Any:
    found = client.search_runs([experiment_id], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
    return found[0] if found else None


def _mark_last(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    # A step counts as present once its mark is: written last, should a record span two batches.
    return sorted(metrics.items(), key=lambda item: item[0] in (EVALUATION_MARK, STEP_MARK))


def _mlflow_status(status: str | None) -> str:
    if status == "finished":
        return "FINISHED"
    return "FAILED" if status is not None and status.startswith("failed") else "KILLED"


def _clean(name: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
