"""One MLflow run that mirrors a run folder.

The run is found again by a tag that holds the folder's run key, so that resuming, replaying and
retrying all continue the same MLflow run. MLflow cannot replace a metric and lists a step logged
twice as two points: steps it already has are left as they are (the first values stay).
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from specrl.config.overrides import key_of
from specrl.errors import RunError
from specrl.telemetry.jsonl import INFO_FILE, STEP_MARK, RunInfo, StepRecord, read_info
from specrl.telemetry.mlflow_client import (
    ENTITIES_PER_BATCH,
    METRICS_PER_BATCH,
    SQLITE,
    batches,
    clean,
    connect,
    experiment_id,
    mlflow_status,
    run_tagged,
    set_tags,
)
from specrl.types import Metrics

KEY_TAG = "specrl.run_key"
PARENT_TAG = "mlflow.parentRunId"  # MLflow's own: its page shows the run below that one
PARENT_KEY = "tracking.parent_run_id"
EVALUATION = "eval/"
EVALUATION_MARK = "eval/accuracy"


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
            raise RunError(
                f"{run_folder / INFO_FILE} is missing or damaged, and MLflow needs it; the run's "
                "own command writes it anew"
            )
        self._uri = uri
        self._client = connect(uri, timeout_s)
        self._monitor: Any = None
        place = experiment_id(self._client, uri, experiment)
        run = _existing(self._client, run_id) or run_tagged(self._client, place, KEY_TAG, info.key)
        if run is None:
            run = self._client.create_run(
                place,
                start_time=int(info.created_s * 1000),
                tags={KEY_TAG: info.key},
                run_name=arm_label(info.config) or run_folder.name,
            )
        self.id: str = run.info.run_id
        if run.info.status != "RUNNING":
            self._client.update_run(self.id, status="RUNNING")
        self._end_replaced(place, info.previous_key)
        self.steps = self._steps_with(STEP_MARK)
        self._evaluated = self._steps_with(EVALUATION_MARK)
        self._describe(info, run_folder, known=run.data.params)

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
            Metric(clean(name), value, int(record.time_s * 1000), record.step)
            for record, metrics in new
            for name, value in _mark_last(metrics)
        ]
        for batch in batches(points, METRICS_PER_BATCH):
            self._client.log_batch(self.id, metrics=batch)
        return len(new)

    def end(self, status: str | None, time_s: float) -> None:
        """Closes the run. None is a run that was killed."""
        if self._monitor is not None:
            self._monitor.finish()
        if status is not None and status.startswith("failed"):
            self._client.set_tag(self.id, "failure", status)
        self._client.set_terminated(self.id, mlflow_status(status), int(time_s * 1000))

    def _steps_with(self, name: str) -> set[int]:
        return {point.step for point in self._client.get_metric_history(self.id, name)}

    def _missing(self, record: StepRecord) -> Metrics:
        """What the run lacks of the record: the last evaluation has no step until a run goes on."""
        if record.step in self.steps:
            return {}
        if record.step not in self._evaluated:
            return record.metrics
        return {k: v for k, v in record.metrics.items() if not k.startswith(EVALUATION)}

    def _end_replaced(self, place: str, key: str | None) -> None:
        replaced = run_tagged(self._client, place, KEY_TAG, key) if key else None
        if replaced is not None and replaced.info.status == "RUNNING":
            self._client.set_terminated(replaced.info.run_id, "KILLED")

    def _describe(self, info: RunInfo, run_folder: Path, known: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        params = flatten(info.config)
        parent = params.pop(PARENT_KEY, "null")
        tags = run_tags(info) | {"run_folder": str(run_folder)}
        if parent != "null":
            tags[PARENT_TAG] = parent
        # MLflow refuses to change a param: what a resumed run changed is a tag instead.
        tags |= {f"changed.{k}": v for k, v in params.items() if k in known and known[k] != v}
        fresh = [Param(k, v) for k, v in params.items() if k not in known]
        for params_batch in batches(fresh, ENTITIES_PER_BATCH):
            self._client.log_batch(self.id, params=params_batch)
        set_tags(self._client, self.id, tags)


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
            params[clean(f"{prefix}{key}")] = text[:6000]
    return params


def arm_label(config: Mapping[str, Any]) -> str:
    """What tells a run from others at a glance: `eagle3 k=3 dapo online, rl_zero_cpu, seed 1`.

    The experiment and a seed of 0 are left out where they are the defaults; "" without a drafter.
    """
    drafter = config.get("drafter") or {}
    if "name" not in drafter:
        return ""
    words = [str(drafter["name"])]
    if words != ["none"]:
        words.append(f"k={drafter.get('k')}")
    init = (config.get("init") or {}).get("name", "none")
    if init != "none":
        words += [init, *_online(config)]
    name, seed = config.get("name", "train"), config.get("seed", 0)
    rest = [*([name] if name != "train" else []), *([f"seed {seed}"] if seed else [])]
    return ", ".join([" ".join(words), *rest])


def run_tags(info: RunInfo) -> dict[str, str]:
    """Each override under `override.<key>` and all as one line, version, commit, the user's tags.

    The user's tags win.
    """
    tags = override_tags(info.overrides)
    tags["overrides"] = " ".join(info.overrides)
    tags["specrl.version"] = info.specrl_version
    if info.machine:
        tags["machine"] = info.machine
    if info.git_commit:
        tags["git_commit"] = info.git_commit
    return tags | {clean(key): value for key, value in info.tags.items()}


def override_tags(overrides: Sequence[str]) -> dict[str, str]:
    """`drafter.k=5` as the tag override.drafter.k: MLflow's page can show it as a column."""
    pairs = ((key_of(word), word.partition("=")[2]) for word in overrides)
    return {clean(f"override.{key}"): value or "null" for key, value in pairs if key}


def _online(config: Mapping[str, Any]) -> list[str]:
    return ["online"] if (config.get("adaptation") or {}).get("name") == "online" else []


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


def _mark_last(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    # A step counts as present once its mark is: written last, should a record span two batches.
    return sorted(metrics.items(), key=lambda item: item[0] in (EVALUATION_MARK, STEP_MARK))
