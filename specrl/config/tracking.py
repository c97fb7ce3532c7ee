"""Where metrics go, beside the JSONL in the run folder that is always written."""

from dataclasses import dataclass, field

from specrl.config.bounds import above


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

    def __post_init__(self) -> None:
        above("tracking.timeout_s", self.timeout_s, 0.0)
