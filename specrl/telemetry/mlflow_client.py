"""How specrl talks to MLflow: a quiet client, the experiment, runs found by a tag.

With its siblings `mlflow_run` and `mlflow_sweep` the only place that imports mlflow, and only when
used. Functions raise whatever MLflow raises and block as long as it does.
"""

import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specrl.errors import RunError

METRICS_PER_BATCH = 1000  # MLflow's limits of one log_batch call
ENTITIES_PER_BATCH = 100
SQLITE = "sqlite:///"


def connect(uri: str, timeout_s: float) -> Any:
    """A client of the server or sqlite file, whose folder is created."""
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


def experiment_id(client: Any, uri: str, name: str) -> str:
    """The experiment's id, created where it is not there. Raises `RunError` for a deleted one."""
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


def run_tagged(client: Any, experiment: str, tag: str, value: str) -> Any:
    """The newest run of the experiment (an id) whose tag has that value; None without one."""
    found = client.search_runs([experiment], f"tags.`{tag}` = '{value}'", max_results=1)
    return found[0] if found else None


def set_tags(client: Any, run_id: str, tags: Mapping[str, str]) -> None:
    """Sets tags, in as few calls as MLflow takes."""
    from mlflow.entities import RunTag

    for batch in batches([RunTag(k, v) for k, v in tags.items()], ENTITIES_PER_BATCH):
        client.log_batch(run_id, tags=batch)


def clean(name: str) -> str:
    """A name that MLflow takes for a metric, param or tag."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


def batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Slices of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def mlflow_status(status: str | None) -> str:
    """MLflow's word for a status of `specrl.protocols.Telemetry.finish`; None is a killed run."""
    if status == "finished":
        return "FINISHED"
    return "FAILED" if status is not None and status.startswith("failed") else "KILLED"


def reason_of(error: Exception) -> str:
    """The first line of what MLflow, its HTTP client or its database said."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _no_mlflow_retries(record: logging.LogRecord) -> bool:
    return "/api/2.0/mlflow" not in record.getMessage()


def _artifacts(uri: str, experiment: str) -> str | None:
    # Beside the sqlite file: MLflow's default depends on the folder the run was started from.
    if not uri.startswith(SQLITE):
        return None
    return (Path(uri.removeprefix(SQLITE)).parent / "mlartifacts" / experiment).as_uri()
