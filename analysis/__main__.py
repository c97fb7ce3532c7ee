"""`python -m analysis`: reads runs, writes tables, figures and a report; runs nothing."""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from specrl.cli.outcome import FAILED, INTERRUPTED, MISTAKE, OneLineParser, tell
from specrl.config.tracking import check_uri
from specrl.errors import RunError, UserError

PROGRAM = "python -m analysis"
DEFAULT_RUNS = Path("outputs")
DEFAULT_OUT = Path("report")
WARMUP_STEPS = 1
"""Compilation and cold caches fall into a run's first step."""

EPILOG = """\
examples:
  python -m analysis                                    every run in outputs/
  python -m analysis --paper-only                       the paper's numbers alone, no runs needed
  python -m analysis --runs outputs --experiment 'rl_think*' --since 2026-11-30
  python -m analysis --mlflow sqlite:///mlflow.db --out report

Speedups compare runs that agree in everything but drafter, init, adaptation and execution; other
pairs are listed with the keys that differ. Exit code 1: a measured speedup is above its Amdahl
bound, or MLflow failed; 2: a mistake in the command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 after an Amdahl violation or a failure, 2 for a mistake (one line each)."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    except RunError as error:
        return tell(PROGRAM, error, FAILED)
    except OSError as error:
        place = error.filename or options.out
        line = f"{place}: {error.strerror or error}; name another folder with --out or --runs"
        return tell(PROGRAM, line, MISTAKE)
    except KeyboardInterrupt:
        return tell(PROGRAM, "interrupted; the same command starts again", INTERRUPTED)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    # Here and not above: a mistake in the command is told before pandas and matplotlib load.
    from analysis.compose import compose
    from analysis.figures.collection import all_pictures
    from analysis.figures.export import save_pictures
    from analysis.paper import load_paper
    from analysis.report import render_html
    from analysis.sources import Filter, Source, since
    from analysis.writers import write, write_tables

    _quiet()
    begun_s = None if options.since is None else since(options.since)
    chosen = Filter(tuple(options.experiment), begun_s)
    source = Source(_roots(options), options.mlflow)
    runs = [] if options.paper_only else source.read(chosen, _progress)
    report = compose(
        load_paper(), runs, source.views, options.warmup, _progress, tuple(source.described)
    )
    written = write_tables(report, options.out)
    _progress("figures")
    pictures = all_pictures(report)
    svgs = save_pictures(pictures, options.out / "figures")
    page = options.out / "report.html"
    write(page, render_html(report, pictures, svgs))
    _progress("")
    for error in report.errors:
        tell(PROGRAM, f"error: {error}", FAILED)
    for problem in report.problems:
        state = "left out" if problem.left_out else "note"
        tell(PROGRAM, f"{state}: {problem.run}: {problem.text}", 0)
    sys.stdout.write(f"{page} and {len(written) + 2 * len(svgs)} files beside it\n")
    return FAILED if report.errors else 0


def _check(options: argparse.Namespace) -> None:
    given = {"--runs": options.runs, "--mlflow": options.mlflow}
    extra = [flag for flag, value in given.items() if value]
    if options.paper_only and extra:
        raise UserError(f"--paper-only reads no runs, and {extra[0]} names some; use one of them")
    if options.warmup < 0:
        raise UserError(f"--warmup {options.warmup} is below 0; use 0 to count every step")
    if options.mlflow is not None:
        check_uri("--mlflow", options.mlflow)
    nothing = not options.paper_only and not extra
    if nothing and not DEFAULT_RUNS.is_dir():
        raise UserError(
            f"no --runs or --mlflow, and no folder {DEFAULT_RUNS}; name some, or use --paper-only"
        )
    _check_out(options.out)


def _check_out(out: Path) -> None:
    """Before minutes of reading; the folder is made when there is something to write."""
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise UserError(f"--out {out}: {nearest} is a file; name a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: {nearest} may not be written to; name another folder")


def _roots(options: argparse.Namespace) -> list[Path]:
    if options.paper_only:
        return []
    return options.runs or ([] if options.mlflow else [DEFAULT_RUNS])


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=PROGRAM,
        description="The paper's tables and figures from runs, checked against the Amdahl bound.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--runs", nargs="+", type=_path, default=[], metavar="DIR",
        help="run folders, or folders that hold some; default: outputs")  # fmt: skip
    add("--mlflow", metavar="URI", help="MLflow server or file, e.g. sqlite:///mlflow.db")
    add("--experiment", nargs="+", default=[], metavar="NAME",
        help="only these experiments, specrl's or MLflow's; * is anything")  # fmt: skip
    add("--since", metavar="DATE", help="only runs that began then or later, e.g. 2026-11-30")
    add("--warmup", type=int, default=WARMUP_STEPS, metavar="N",
        help=f"steps left out at the start of every run; default: {WARMUP_STEPS}")  # fmt: skip
    add("--out", type=_path, default=DEFAULT_OUT, metavar="DIR",
        help="for report.html, tables.md, numbers.csv, figures; default: report")  # fmt: skip
    add("--paper-only", action="store_true", help="no runs: what the paper's own numbers say")
    return parser


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a folder")
    return Path(text)


def _progress(text: str) -> None:
    """One line that the next one overwrites, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def _quiet() -> None:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)


if __name__ == "__main__":
    sys.exit(main())
