"""The MLflow run of a whole sweep: its points' runs are shown below it, with what they compare to.

The run is found again by a tag that holds the sweep's key, so that a rerun continues it. No point
needs it to run: `open_sweep` and `end_sweep` turn what MLflow raises into one warning.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specrl.config.tracking import MlflowConfig
from specrl.telemetry.jsonl import read_info
from specrl.telemetry.mlflow_client import (
    clean,
    connect,
    experiment_id,
    mlflow_status,
    reason_of,
    run_tagged,
    set_tags,
)
from specrl.telemetry.mlflow_run import KEY_TAG, PARENT_TAG, absolute_uri, override_tags
from specrl.types import Metrics

SWEEP_TAG = "specrl.sweep_key"
NOTE_TAG = "mlflow.note.content"  # MLflow's own: the description on the run's page
FIGURES = "arm/"
COUNTS = "sweep/"
NOTE_COLUMNS = (
    "generation_s",
    "step_s",
    "R_gen",
    "acceptance_length",
    "speedup_generation",
    "speedup_step",
    "amdahl_bound",
    "c_k",
    "accuracy",
)
NOTE_CHARS = 7000  # MLflow takes 8000

logger = logging.getLogger(__name__)
Warn = Callable[[str], None]


@dataclass(frozen=True)
class SweepPoint:
    """How a point of the sweep ended, and its figures beside the other arms.

    `figures` are those of `specrl.algo.comparison.figures`; empty where no step was finished.
    """

    folder: Path
    state: str
    figures: Metrics


class ParentRun(Protocol):
    """What a sweep needs of `MlflowSweep`; tests put a broken one in its place."""

    id: str

    def end(self, points: Sequence[SweepPoint], status: str) -> None: ...


class MlflowSweep:
    """The open parent run. Methods raise whatever MLflow raises and block as long as it does."""

    def __init__(
        self, tracking: MlflowConfig, key: str, name: str, overrides: Sequence[str]
    ) -> None:
        """Finds the run with the sweep's key or creates it, and sets it RUNNING."""
        uri = absolute_uri(tracking.uri)
        self._client = connect(uri, tracking.timeout_s)
        self._place = experiment_id(self._client, uri, tracking.experiment)
        run = run_tagged(self._client, self._place, SWEEP_TAG, key)
        if run is None:
            run = self._client.create_run(self._place, tags={SWEEP_TAG: key}, run_name=name)
        self.id: str = run.info.run_id
        self._client.update_run(self.id, status="RUNNING", name=name)
        words = {"overrides": " ".join(overrides), "specrl.kind": "sweep"}
        set_tags(self._client, self.id, override_tags(overrides) | words | tracking.tags)

    def end(self, points: Sequence[SweepPoint], status: str) -> None:
        """Puts the points' runs below this one, with their figures, and closes it.

        `status` is "finished", "failed: reason" or "interrupted". A point without a run here is
        only counted; one that finished in an earlier sweep moves to this one.
        """
        named = [(self._adopt(point), point) for point in points]
        states = Counter(point.state for point in points)
        counts = {"finished": 0, "failed": 0, **states, "points": len(points)}
        known = self._client.get_run(self.id).data.metrics
        self._log(self.id, known, {f"{COUNTS}{name}": float(n) for name, n in counts.items()})
        self._client.set_tag(self.id, NOTE_TAG, note(named))
        if status.startswith("failed"):
            self._client.set_tag(self.id, "failure", status)
        self._client.set_terminated(self.id, mlflow_status(status))

    def _adopt(self, point: SweepPoint) -> str:
        """The run's name in MLflow, or its folder's where there is none."""
        info = read_info(point.folder)
        key = None if info is None else info.key
        run = run_tagged(self._client, self._place, KEY_TAG, key) if key else None
        if run is None:
            return point.folder.name
        child = run.info.run_id
        self._client.set_tag(child, PARENT_TAG, self.id)
        figures = {f"{FIGURES}{name}": value for name, value in point.figures.items()}
        self._log(child, run.data.metrics, figures)
        return str(run.info.run_name)

    def _log(self, run_id: str, known: Mapping[str, float], metrics: Metrics) -> None:
        # All at step 0: MLflow shows the newest, as a bar beside those of the other runs.
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        changed = {clean(name): v for name, v in metrics.items() if known.get(clean(name)) != v}
        if changed:
            points = [Metric(name, value, now_ms, 0) for name, value in changed.items()]
            self._client.log_batch(run_id, metrics=points)


def open_sweep(
    tracking: MlflowConfig,
    key: str,
    name: str,
    overrides: Sequence[str],
    *,
    warn: Warn = logger.warning,
    opened: Callable[..., ParentRun] = MlflowSweep,
) -> ParentRun | None:
    """The sweep's run, or None after one warning when MLflow does not answer.

    Waits `tracking.timeout_s` for each request. `key` names the sweep across reruns, `name` is
    what MLflow's page shows.
    """
    try:
        return opened(tracking, key, name, overrides)
    # A tracker must not keep a sweep from running, whatever its client or database raises.
    except Exception as error:
        logger.debug("MLflow at %s failed", tracking.uri, exc_info=error)
        warn(
            f"MLflow at {tracking.uri} failed ({reason_of(error)}); the sweep goes on, "
            "its runs are not grouped there until the same command is given again"
        )
        return None


def end_sweep(
    run: ParentRun | None,
    points: Sequence[SweepPoint],
    status: str,
    *,
    warn: Warn = logger.warning,
) -> None:
    """Ends the sweep's run as `MlflowSweep.end`; nothing for None, one warning on a failure."""
    if run is None:
        return
    try:
        run.end(points, status)
    except Exception as error:
        logger.debug("MLflow failed", exc_info=error)
        warn(
            f"MLflow failed at the end of the sweep ({reason_of(error)}); its runs are there, the "
            "comparison is not: give the same command again, finished points are skipped"
        )


def note(named: Sequence[tuple[str, SweepPoint]]) -> str:
    """The points as a Markdown table, for the description on the sweep's page."""
    columns = [c for c in NOTE_COLUMNS if any(c in point.figures for _, point in named)]
    rows = [
        ["run", "state", *columns],
        ["---"] * (len(columns) + 2),
        *([name, p.state, *(_shown(p.figures.get(c)) for c in columns)] for name, p in named),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    while len("\n".join(lines)) > NOTE_CHARS:
        lines[-2:] = ["| ... |"]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.3g}"
