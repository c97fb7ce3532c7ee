"""specrl-replay: puts run folders into MLflow after the fact."""

import argparse
import sys
from pathlib import Path

from specrl.cli.outcome import FAILED, INTERRUPTED, MISTAKE, OneLineParser, tell
from specrl.config.bounds import not_empty
from specrl.config.tracking import check_uri
from specrl.errors import RunError, UserError
from specrl.run_folder import exclusive
from specrl.telemetry.mlflow_run import ui_command
from specrl.telemetry.replay import replay

PROGRAM = "specrl-replay"


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every folder is in MLflow, else that of the first which is not.

    2 is a mistake in the command or its folder, 1 a failure of MLflow; each is one line.
    """
    parser = OneLineParser(
        prog=PROGRAM,
        description="Writes the steps of finished runs that MLflow lacks. Repeating it is safe.",
        epilog="example: specrl-replay outputs/* --uri http://tracking:5000",
    )
    parser.add_argument(
        "run_folder", nargs="+", type=Path, help="folder with run.json, metrics.jsonl"
    )
    parser.add_argument("--uri", help="tracking URI; default: what the run's config says")
    parser.add_argument(
        "--experiment", help="MLflow experiment; default: what the run's config says"
    )
    options = parser.parse_args(arguments)
    try:
        _check(options)
    except UserError as error:
        return _tell(error)
    codes = []
    for folder in options.run_folder:
        try:
            if folder.is_file():
                raise UserError(f"{folder} is a file, not a run folder; name the folder it is in")
            with exclusive(folder, must_exist=True):
                done = replay(folder, options.uri, options.experiment)
        except (UserError, RunError) as error:
            codes.append(_tell(error))
            continue
        except KeyboardInterrupt:
            return tell(PROGRAM, "interrupted; the same command writes the rest", INTERRUPTED)
        sys.stdout.write(
            f"{folder}: {done.written} steps written, {done.present} already there "
            f"(experiment {done.experiment}, run {done.run_id})\n  {ui_command(done.uri)}\n"
        )
    return next(iter(codes), 0)


def _check(options: argparse.Namespace) -> None:
    if options.uri is not None:
        check_uri("--uri", options.uri)
    if options.experiment is not None:
        not_empty("--experiment", options.experiment)


def _tell(error: UserError | RunError) -> int:
    return tell(PROGRAM, error, MISTAKE if isinstance(error, UserError) else FAILED)
