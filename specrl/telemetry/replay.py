"""Puts a run folder into MLflow after the fact."""

from dataclasses import dataclass
from pathlib import Path

from specrl.config.tracking import MlflowConfig
from specrl.errors import RunError, UserError
from specrl.telemetry.jsonl import INFO_FILE, read_run
from specrl.telemetry.mlflow_run import MlflowRun, absolute_uri

REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Replayed:
    """What `replay` did. `written` and `present` count steps."""

    run_id: str
    uri: str
    experiment: str
    written: int
    present: int


def replay(folder: Path, uri: str | None = None, experiment: str | None = None) -> Replayed:
    """Writes the steps that MLflow lacks of a run that is over, and its final status.

    Repeating it writes nothing. None takes what the run's config says, else the defaults of
    `MlflowConfig`. Raises `UserError` for a folder without a run, `RunError` when MLflow fails.
    """
    log = read_run(folder)
    if log.info is None:
        raise UserError(
            f"{folder / INFO_FILE} is missing or damaged, and a replay needs it; the run's own "
            "command writes it anew"
        )
    tracking = log.info.config.get("tracking") or {}
    default = MlflowConfig()
    uri = absolute_uri(uri or tracking.get("uri") or default.uri)
    experiment = experiment or tracking.get("experiment") or default.experiment
    last_s = log.records[-1].time_s if log.records else log.info.created_s
    try:
        run = MlflowRun(uri, experiment, folder, None, REQUEST_TIMEOUT_S)
        run.upload_config(folder)
        written = run.write(log.records)
        run.end(log.info.status, log.info.finished_s or last_s)
    except RunError:
        raise
    # MLflow, its HTTP client and its database raise types of their own, all with one meaning here.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunError(f"MLflow at {uri} failed: {reason}; repeat once it answers") from error
    return Replayed(run.id, uri, experiment, written, len(log.records) - written)
