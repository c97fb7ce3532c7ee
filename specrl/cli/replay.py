"""specrl-replay: puts run folders into MLflow after the fact."""

import argparse
import sys
from pathlib import Path

from specrl.errors import RunError, UserError
from specrl.run_folder import exclusive
from specrl.telemetry.mlflow_run import ui_command
from specrl.telemetry.replay import replay


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every folder is in MLflow, else 1 with one line per folder that is not."""
    parser = argparse.ArgumentParser(
        prog="specrl-replay",
        description="Writes the steps of finished runs that MLflow lacks. Repeating it is safe.",
        epilog="example: specrl-replay outputs/demo/* --uri http://tracking:5000",
    )
    parser.add_argument(
        "run_folder", nargs="+", type=Path, help="folder with run.json, metrics.jsonl"
    )
    parser.add_argument("--uri", help="tracking URI; default: what the run's config says")
    parser.add_argument(
        "--experiment", help="MLflow experiment; default: what the run's config says"
    )
    options = parser.parse_args(arguments)
    failed = False
    for folder in options.run_folder:
        try:
            with exclusive(folder, must_exist=True):
                done = replay(folder, options.uri, options.experiment)
        except (UserError, RunError) as error:
            sys.stderr.write(f"{error}\n")
            failed = True
            continue
        sys.stdout.write(
            f"{folder}: {done.written} steps written, {done.present} already there "
            f"(experiment {done.experiment}, run {done.run_id})\n  {ui_command(done.uri)}\n"
        )
    return int(failed)
