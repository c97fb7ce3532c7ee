"""The `specrl` command: one run, or a sweep with -m."""

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
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
from specrl.errors import RunError, UserError
from specrl.sweep.point import PointTask, Run, naming_disk_faults, recorded, train
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
    plan = checked_plan(flags, overrides)
    if dry:
        return _tell_plan(plan)
    if plan is None:
        return hand_to_hydra(flags, overrides)
    if not plan.sweep:
        return _one(plan.tasks[0], run)
    try:
        with naming_disk_faults(Path(plan.tasks[0].config.output_dir)):
            return _sweep(plan, run) if plan.direct else hand_to_hydra(flags, overrides, Task(run))
    except OSError as error:
        raise UserError(f"output_dir cannot be used: {error}; set output_dir") from error


def checked_plan(flags: Sequence[str], overrides: Sequence[str]) -> Plan | None:
    """As `specrl.cli.sweep.planned`; every mistake is a `UserError` of one line."""
    check_flags(flags, overrides)
    if "-sc" not in flags and "--shell-completion" not in flags:
        mistakes.check_overrides(overrides)
    register()
    try:
        return planned(flags, overrides)
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(mistakes.explain(error)) from error


class Task:
    """Hydra's task function: a run in this process. A launcher of specrl's takes `run` from it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.codes: list[int] = []

    def __call__(self, cfg: DictConfig) -> None:
        """Codes are collected, not raised: Hydra would add lines of its own."""
        config, words = to_config(cfg), as_written(HydraConfig.get().overrides.task)
        self.codes.append(_one(PointTask(config, run_folder(config), tuple(words)), self.run))


def hand_to_hydra(flags: Sequence[str], overrides: Sequence[str], task: Task | None = None) -> int:
    """Exit code of what Hydra does: it shows a config, completes a word, or runs tasks."""
    task = task or Task(train)
    sys.argv[1:] = [*flags, *overrides]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting itself.
    place = {"config_path": f"pkg://{tree.PACKAGE}", "config_name": CONFIG_NAME}
    try:
        hydra.main(version_base="1.3", **place)(task)()
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(mistakes.explain(error)) from error
    return next((code for code in task.codes if code), 0)


def _tell_plan(plan: Plan | None) -> int:
    if plan is None:
        raise UserError(
            f"{DRY_RUN} shows what a run would do; leave out --cfg, --info and the like"
        )
    # Here and not above: help and completion need none of it.
    from specrl.sweep.dry_run import dry_run

    lines = dry_run(plan.tasks, plan.where, plan.slurm, plan.budget)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _sweep(plan: Plan, run: Run) -> int:
    """0, or an error that says what did not finish."""
    from specrl.sweep.launch import launch as launch_points

    executor = instantiate(plan.launcher).executor()
    launch_points([replace(task, run=run) for task in plan.tasks], executor, plan.typed)
    return 0


def _one(task: PointTask, run: Run) -> int:
    """Exit code of one run in this process."""
    from specrl.build_processes import check_cluster
    from specrl.sweep.possible import check_possible

    try:
        check_cluster(task.config)
        check_possible(task.config)
        with recorded(task.config, task.folder, task.overrides):
            run(task.config, task.folder, task.overrides)
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    except RunError as error:
        return tell(PROGRAM, error, FAILED)
    except Exception:
        traceback.print_exc()
        return FAILED
    return 0
