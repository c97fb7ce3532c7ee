"""specrl-status: where the points of a sweep stand, at any time, also after a crash."""

import io
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from specrl.cli.outcome import MISTAKE, OneLineParser, tell
from specrl.errors import UserError
from specrl.sweep.points import Point
from specrl.sweep.record import FOLDER, SweepRecord, damaged_in, read_record, records_in
from specrl.sweep.status import STATUS_FILE, is_alive, read_status
from specrl.sweep.table import Row, rows_of, table_of
from specrl.telemetry.console import PipeSafeConsole

PROGRAM = "specrl-status"


def main() -> None:
    """Console script."""
    sys.exit(report(sys.argv[1:]))


def report(arguments: Sequence[str]) -> int:
    """Exit code of `specrl-status ARGUMENTS`: 0, or 2 for a place that has no runs."""
    parser = OneLineParser(
        prog=PROGRAM,
        description="Shows every sweep and run of a folder: state, seconds, key metrics, logs.",
        epilog="example: specrl-status outputs; specrl-status outputs/sweeps/1f2e3d4c.json --json",
    )
    parser.add_argument(
        "place",
        nargs="?",
        type=Path,
        default=Path("outputs"),
        help="output_dir, the .json file of one sweep, or a run folder (default: outputs)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    options = parser.parse_args(list(arguments))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of folders may be no UTF-8
    for path in damaged_in(_output_dir(options.place)):
        tell(PROGRAM, f"{path} is damaged; remove it: that sweep's command writes it anew", 0)
    try:
        groups = found_in(options.place)
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    shown = [(record, rows_of(points)) for record, points in groups]
    if options.json:
        _write_json(shown)
    else:
        for record, rows in shown:
            _show(record, rows)
    return 0


def found_in(place: Path) -> list[tuple[SweepRecord | None, list[Point]]]:
    """Sweeps, the last launched one last, and before them the runs of no sweep.

    Raises `UserError` where there is neither.
    """
    if place.is_file():
        record = read_record(place)
        if record is None:
            raise UserError(
                f"{place} is no record of a sweep; name an intact file of <output_dir>/{FOLDER}"
            )
        return [(record, list(record.points))]
    if (place / STATUS_FILE).exists():
        return [(None, [_lone(place)])]
    if not place.is_dir():
        raise UserError(f"{place} does not exist; name the output_dir of a sweep or run")
    records = records_in(_output_dir(place))
    in_sweeps = {point.folder.resolve() for record in records for point in record.points}
    folders = sorted(path.parent for path in place.glob(f"*/{STATUS_FILE}"))
    lone = [_lone(folder) for folder in folders if folder.resolve() not in in_sweeps]
    groups: list[tuple[SweepRecord | None, list[Point]]] = [(None, lone)] if lone else []
    groups += [(record, list(record.points)) for record in reversed(records)]
    if not groups:
        raise UserError(f"{place} has no sweep and no run; name the output_dir of one")
    return groups


def _output_dir(place: Path) -> Path:
    return place.parent if place.name == FOLDER else place


def _lone(folder: Path) -> Point:
    """A run of no sweep; its drafter does not matter beside nothing."""
    status = read_status(folder)
    return Point(status.overrides if status else (), "", folder)


def _show(record: SweepRecord | None, rows: Sequence[Row]) -> None:
    console = PipeSafeConsole()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    say(f"sweep {record.signature}: {command_of(record)}" if record else "runs of no sweep")
    console.print(table_of(rows), soft_wrap=True)
    left = [row for row in rows if row.status.state != "finished"]
    if record and left and not any(is_alive(row.point.folder, row.status) for row in left):
        say(f"nobody runs the {len(left)} that are left; the command above goes on")


def command_of(record: SweepRecord) -> str:
    """What was typed."""
    return shlex.join(["specrl", "-m", *record.overrides])


def _write_json(shown: Sequence[tuple[SweepRecord | None, Sequence[Row]]]) -> None:
    sweeps = [
        {
            "sweep": record.signature if record else None,
            "command": command_of(record) if record else None,
            "points": [row.as_json() for row in rows],
        }
        for record, rows in shown
    ]
    sys.stdout.write(json.dumps(sweeps, indent=1) + "\n")
