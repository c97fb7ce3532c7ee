"""Mirrors the run folder into MLflow from a thread of its own; training never waits for it."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from specrl.config.tracking import MlflowConfig
from specrl.telemetry.jsonl import METRICS_FILE, StepRecord, read_from
from specrl.telemetry.mlflow_client import reason_of
from specrl.telemetry.mlflow_run import MlflowRun, absolute_uri
from specrl.telemetry.sink import Sink
from specrl.types import Metrics

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0

logger = logging.getLogger(__name__)


class TrackedRun(Protocol):
    """What the sink needs of `MlflowRun`; tests put slow and broken ones in its place."""

    id: str

    def write(self, records: list[StepRecord]) -> int: ...

    def upload_config(self, run_folder: Path) -> None: ...

    def watch_system(self) -> None: ...

    def end(self, status: str | None, time_s: float) -> None: ...


class MlflowSink(Sink):
    """Follows metrics.jsonl of the run folder and writes what is new, one batch at a time.

    Needs a `JsonlSink` on the same folder that is started and logged to before this one. `log` only
    wakes the thread. While the server is slow, hanging or gone the thread retries; the run goes on
    after one warning, and `finish` waits `config.timeout_s` at most. Steps that did not get through
    are in metrics.jsonl for `specrl-replay`.
    """

    def __init__(
        self,
        run_folder: Path,
        config: MlflowConfig,
        *,
        run_id: str | None = None,
        warn: Callable[[str], None] = logger.warning,
        open_run: Callable[[], TrackedRun] | None = None,
    ) -> None:
        self._folder = run_folder
        self._config = config
        self._uri = absolute_uri(config.uri)
        self._run_id = run_id
        self._warn = warn
        self._open_run = open_run or self._open_mlflow
        self._run: TrackedRun | None = None
        self._offset = 0
        self._status = ""
        self._warned = False
        self._reason = ""
        self._complete = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mlflow-sink", daemon=True)

    @property
    def run_id(self) -> str | None:
        return self._run_id

    def start(self) -> None:
        self._thread.start()

    def log(self, step: int, metrics: Metrics) -> None:
        del step, metrics
        self._wake.set()

    def finish(self, status: str) -> None:
        self._status = status
        self._closing.set()
        self._wake.set()
        self._thread.join(self._config.timeout_s)
        if not self._complete:
            reason = f" ({self._reason})" if self._reason else ""
            self._warn(
                f"MLflow at {self._uri} lacks the end of this run{reason}; "
                f"once it answers: specrl-replay {self._folder}"
            )

    def _work(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            self._wake.clear()
            last = self._closing.is_set()
            try:
                self._mirror(last)
            # A tracker must not end a training run, whatever its client or database raises.
            except Exception as error:
                self._report(error)
                if last:
                    return
                self._closing.wait(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
                continue
            if last:
                self._complete = True
                return
            retry_s = FIRST_RETRY_S
            self._wake.wait()

    def _mirror(self, last: bool) -> None:
        if self._run is None:
            self._run = self._open_run()
            self._run_id = self._run.id
            self._extras(self._run)
        records, offset = read_from(self._folder / METRICS_FILE, self._offset)
        if records:
            self._run.write(records)
        self._offset = offset
        if last:
            self._run.end(self._status, time.time())

    def _extras(self, run: TrackedRun) -> None:
        # Metrics matter more: a broken artifact store or monitor costs only itself.
        try:
            run.upload_config(self._folder)
            if self._config.system_metrics:
                run.watch_system()
        except Exception as error:
            self._warn(
                f"MLflow at {self._uri}: config artifact or system metrics failed "
                f"({reason_of(error)}); metrics go on; for the rest check its artifact store or "
                "set tracking.system_metrics=false"
            )

    def _report(self, error: Exception) -> None:
        logger.debug("MLflow at %s failed", self._uri, exc_info=error)
        reason = self._reason = reason_of(error)
        if self._warned:
            return
        self._warned = True
        self._warn(
            f"MLflow at {self._uri} failed ({reason}); training goes on, every step is in "
            f"{self._folder / METRICS_FILE}"
        )

    def _open_mlflow(self) -> TrackedRun:
        config = self._config
        return MlflowRun(self._uri, config.experiment, self._folder, self._run_id, config.timeout_s)
