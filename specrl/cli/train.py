"""The `specrl` command: one run, or a sweep with -m."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from specrl import __version__
from specrl.cli import help as help_pages
from specrl.cli.arguments import check_flags, overrides_last, wants_help
from specrl.cli.outcome import FAILED, INTERRUPTED, MISTAKE, tell
from specrl.cli.sweep import CONFIG_NAME, Point, as_written, checked_points
from specrl.config import mistakes, tree
from specrl.config.door import to_config
from specrl.config.signature import run_folder
from specrl.config.store import register
from specrl.config.train import TrainConfig
from specrl.errors import RunError, UserError

Run = Callable[[TrainConfig, Path, Sequence[str]], None]

PROGRAM = "specrl"


def main() -> None:
    """Console script."""
    sys.exit(launch(sys.argv[1:], _run))


def launch(argv: Sequence[str], run: Run) -> int:
    """Exit code of `specrl ARGV`; `run` does one point after its config is checked."""
    try:
        if "--version" in argv:
            sys.stdout.write(f"specrl {__version__}\n")
            return 0
        if wants_help(argv):
            words = [word for word in argv if not word.startswith("-")]
            text = help_pages.choices_page(words) if words else help_pages.page()
            sys.stdout.write(f"{text}\n")
            return 0
        return _compose_and_run(argv, run)
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    except KeyboardInterrupt:
        return tell(PROGRAM, "interrupted", INTERRUPTED)


def _compose_and_run(argv: Sequence[str], run: Run) -> int:
    flags, overrides = overrides_last(argv)
    check_flags(flags, overrides)
    if "-sc" not in flags and "--shell-completion" not in flags:
        mistakes.check_overrides(overrides)
    register()
    sys.argv[1:] = [*flags, *overrides]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting itself.
    try:
        return _run_points(checked_points(flags, overrides), run)
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(mistakes.explain(error)) from error
    except OSError as error:
        return tell(PROGRAM, f"output_dir cannot be used: {error}; set output_dir", MISTAKE)


def _run_points(points: Sequence[Point], run: Run) -> int:
    """Codes are collected, not raised: Hydra would end a sweep or add lines of its own.

    `points` are those of a sweep, compared once it ends; Ctrl-C leaves those that finished.
    """
    codes: list[int] = []
    finished: set[Path] = set()

    @hydra.main(version_base="1.3", config_path=f"pkg://{tree.PACKAGE}", config_name=CONFIG_NAME)
    def point(cfg: DictConfig) -> None:
        code, folder = _point(cfg, run)
        codes.append(code)
        if folder is not None:
            finished.add(folder)

    try:
        point()
    finally:
        _compare([planned for planned in points if planned.folder in finished])
    return next((code for code in codes if code), 0)


def _point(cfg: DictConfig, run: Run) -> tuple[int, Path | None]:
    """(exit code, run folder) of one run. Any exception is told here, so that a sweep goes on."""
    overrides = as_written(HydraConfig.get().overrides.task)
    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    label = f"{' '.join(overrides)}: " if sweep else ""
    try:
        config = to_config(cfg)
        folder = run_folder(config)
        run(config, folder, overrides)
    except UserError as error:
        return tell(PROGRAM, f"{label}{error}", MISTAKE), None
    except RunError as error:
        return tell(PROGRAM, f"{label}{error}", FAILED), None
    except Exception:
        traceback.print_exc()
        return FAILED, None
    return 0, folder


def _compare(points: Sequence[Point]) -> None:
    if len(points) > 1:
        # Here and not above: a help page need not wait for rich.
        from specrl.cli.comparison import print_comparison

        print_comparison(points)


def _run(config: TrainConfig, folder: Path, overrides: Sequence[str]) -> None:
    # Here and not above: torch, vLLM and Ray load only once the config is known to be right.
    from specrl.build import run

    run(config, folder, overrides)
