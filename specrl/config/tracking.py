"""Where metrics go, beside the JSONL in the run folder that is always written."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from specrl.config.bounds import above, not_empty
from specrl.errors import UserError

_SQLITE = re.compile(r"sqlite:///(?!:memory:).*[^/\s]")
_DATABASE = re.compile(r"(postgresql|mysql|mssql)(\+\w+)?://[^\s/]*/?[^\s/]+")


@dataclass(kw_only=True)
class TrackingConfig:
    """`none` keeps only the JSONL and the console."""

    name: str = "none"
    """Name of the tracker."""


@dataclass(kw_only=True)
class MlflowConfig(TrackingConfig):
    """MLflow, sqlite by default."""

    name: str = "mlflow"
    """Name of the tracker."""

    uri: str = "sqlite:///mlflow.db"
    """Tracking URI: sqlite file or server address."""

    experiment: str = "specrl"
    """MLflow experiment."""

    tags: dict[str, str] = field(default_factory=dict)
    """Extra tags of the run."""

    timeout_s: float = 10.0
    """Seconds to wait for a server at start and at the end; training never waits in between."""

    system_metrics: bool = True
    """CPU, memory and GPU use beside the run's metrics."""

    parent_run_id: str | None = None
    """MLflow run that this one is shown below; a sweep sets it to its own."""

    def __post_init__(self) -> None:
        check_uri("tracking.uri", self.uri)
        not_empty("tracking.experiment", self.experiment)
        above("tracking.timeout_s", self.timeout_s, 0.0)


def check_uri(key: str, uri: str) -> None:
    """Raises `UserError` for what is no server, sqlite file or database that MLflow can use."""
    not_empty(key, uri)
    if not (_SQLITE.fullmatch(uri) or _DATABASE.fullmatch(uri) or _is_server(uri)):
        raise UserError(
            f"{key}={uri} is no address that MLflow can use; write http://host:port, "
            "sqlite:///file.db, postgresql://... or mysql://..."
        )


def _is_server(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        return False
    return named and parts.scheme in ("http", "https") and re.search(r"\s", uri) is None
