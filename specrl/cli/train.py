"""The `specrl` command: one run, or a sweep with -m."""

import os
import sys
import traceback
from collections.abc import Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from specrl import __version__
from specrl.cli import help as help_pages
from specrl.cli.arguments import check_flags, overrides_last, wants_help
from specrl.cli.outcome import FAILED, INTERRUPTED, MISTAKE, tell
from specrl.cli.sweep import CONFIG_NAME, Plan, planned
from specrl.config import mistakes, tree
from specrl.config.door import to_config
from specrl.config.signature import run_folder
from specrl.config.store import register
from specrl.durable import DISK_FAULTS
from specrl.errors import RunError, UserError
from specrl.sweep.point import Run, recorded, train
from specrl.sweep.points import as_written

PROGRAM = "specrl"
DRY_RUN = "--dry-run"


def main() -> None:
    """Console script."""
    sys.exit(launch(sys.argv[1:], train))


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
    except RunError as error:
        return tell(PROGRAM, error, FAILED)
    except KeyboardInterrupt:
        return tell(PROGRAM, "interrupted", INTERRUPTED)


def _compose_and_run(argv: Sequence[str], run: Run) -> int:
    dry = DRY_RUN in argv
    flags, overrides = overrides_last([word for word in argv if word != DRY_RUN])
    check_flags(flags, overrides)
    if "-sc" not in flags and "--shell-completion" not in flags:
        mistakes.check_overrides(overrides)
    register()
    sys.argv[1:] = [*flags, *overrides]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting itself.
    try:
        plan = planned(flags, overrides, single=dry)
        if dry:
            return _tell_plan(plan)
        task = Task(run, plan)
        place = {"config_path": f"pkg://{tree.PACKAGE}", "config_name": CONFIG_NAME}
        hydra.main(version_base="1.3", **place)(task)()
        return next((code for code in task.codes if code), 0)
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(mistakes.explain(error)) from error
    except OSError as error:
        fix = DISK_FAULTS.get(error.errno or 0)
        also = f", or {fix}" if fix else ""
        line = f"output_dir cannot be used: {error}; set output_dir{also}"
        return tell(PROGRAM, line, MISTAKE)


def _tell_plan(plan: Plan | None) -> int:
    if plan is None:
        raise UserError(
            f"{DRY_RUN} shows what a run would do; leave out --cfg, --info and the like"
        )
    # Here and not above: help and completion need none of it.
    from specrl.sweep.dry_run import dry_run

    lines = dry_run(plan.tasks, plan.where, plan.slurm)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


class Task:
    """Hydra's task function: one run in this process.

    A launcher runs its points in other processes: it takes `run` and the checked `tasks`, keyed by
    the overrides that Hydra names a point by.
    """

    def __init__(self, run: Run, plan: Plan | None) -> None:
        self.run = run
        self.tasks = dict(zip(plan.points, plan.tasks, strict=True)) if plan else {}
        self.codes: list[int] = []

    def __call__(self, cfg: DictConfig) -> None:
        """Codes are collected, not raised: Hydra would add lines of its own."""
        self.codes.append(_one(cfg, self.run))


def _one(cfg: DictConfig, run: Run) -> int:
    """Exit code of one run."""
    try:
        config = to_config(cfg)
        folder, overrides = run_folder(config), as_written(HydraConfig.get().overrides.task)
        with recorded(config, folder, overrides):
            run(config, folder, overrides)
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    except RunError as error:
        return tell(PROGRAM, error, FAILED)
    except Exception:
        traceback.print_exc()
        return FAILED
    return 0
