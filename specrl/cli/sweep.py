"""A sweep, expanded and checked before its first point starts."""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import prod

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from specrl.config import tree
from specrl.config.bounds import at_least
from specrl.config.door import to_config
from specrl.errors import UserError
from specrl.sweep.point import PointTask
from specrl.sweep.points import checked_run, checked_tasks, within_choice, without_hydra

CONFIG_NAME = "train"
MOST_POINTS = 10_000
SETTINGS = {"sweeper.max_batch_size": 1, "launcher.jobs": 1, "launcher.poll_s": 0}
"""The least that what runs a sweep may be set to; where it is null or not there nothing is."""


@dataclass(frozen=True)
class Plan:
    """What a command line asks for: the points of a sweep, or one run.

    `hydra` is the composed config of Hydra itself, `typed` what was typed for all of them.
    """

    sweep: bool
    tasks: list[PointTask]
    hydra: DictConfig
    typed: tuple[str, ...] = ()

    @property
    def launcher(self) -> DictConfig:
        """What starts the points of a sweep."""
        launcher = self.hydra.launcher
        assert isinstance(launcher, DictConfig)
        return launcher

    @property
    def budget(self) -> str:
        """What the sweep that was asked for says that it costs, as it is written."""
        name = self.hydra.runtime.choices.get("sweep")
        found = [choice for choice in tree.groups()["sweep"] if choice.name == name]
        return f"sweep={name} as it is: {tree.budget(found[0])}" if found else ""

    @property
    def direct(self) -> bool:
        """Whether it needs no more of Hydra: a launcher of specrl's, all points at once."""
        own = str(self.launcher._target_).startswith("hydra_plugins.specrl_launchers.")
        return own and self.hydra.sweeper.max_batch_size is None

    @property
    def slurm(self) -> bool:
        """Whether they become Slurm jobs."""
        return self.sweep and str(self.launcher._target_).endswith(".SlurmLauncher")

    @property
    def where(self) -> str:
        """What would run them, in words."""
        if self.slurm:
            return "as Slurm jobs"
        jobs = self.launcher.get("jobs", 1) if self.sweep else 1
        return "on this machine" + (f", {jobs} at once" if self.sweep else "")


def planned(flags: Sequence[str], overrides: Sequence[str]) -> Plan | None:
    """What `specrl FLAGS OVERRIDES` would run, all of it checked; None where it runs nothing.

    Raises `UserError` for what cannot start, in a sweep with the overrides of the point, and for a
    config that --cfg cannot show.
    """
    args = get_args_parser().parse_args([*flags, *overrides])
    if args.info or args.shell_completion or args.hydra_help:
        return None
    with _config_loader(args.config_path, args.config_dir) as loader:
        name = args.config_name or CONFIG_NAME
        if args.cfg:
            _check_shown(args, loader.load_configuration(name, list(overrides), RunMode.RUN))
            return None
        anywhere = [word for word in overrides if not within_choice(word)]
        master = loader.load_configuration(name, anywhere, RunMode.MULTIRUN)
        if not args.multirun and master.hydra.mode != RunMode.MULTIRUN:
            composed = loader.load_configuration(name, list(overrides), RunMode.RUN)
            return Plan(False, [checked_run(composed)], composed.hydra)
        _check_settings(master.hydra)
        typed = _typed(overrides)
        tasks = checked_tasks(loader, master, _expanded(loader, master, typed))
        return Plan(True, tasks, master.hydra, typed)


@contextmanager
def _config_loader(config_path: str | None, config_dir: str | None) -> Iterator[ConfigLoader]:
    """What hydra.main composes with, for the same flags."""
    search_path = create_config_search_path(config_path or f"pkg://{tree.PACKAGE}")
    if config_dir is not None:
        search_path.prepend(
            "command-line", f"file://{os.path.abspath(config_dir)}", SearchPathQuery("schema")
        )
    hydra = Hydra.create_main_hydra2(CONFIG_NAME, search_path)
    try:
        yield hydra.config_loader
    finally:
        GlobalHydra.instance().clear()


def _typed(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides without those of Hydra itself."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return tuple(str(word.input_line) for word in parsed if not word.is_hydra_override())


def _check_settings(hydra: DictConfig) -> None:
    """Raises `UserError` for settings of sweeper and launcher that are out of range."""
    for key, low in SETTINGS.items():
        value = OmegaConf.select(hydra, key)
        if value is not None:
            at_least(f"hydra.{key}", value, low)


def _expanded(
    loader: ConfigLoader, master: DictConfig, typed: Sequence[str]
) -> list[tuple[str, ...]]:
    params = master.hydra.sweeper.params or {}
    words = [*(f"{key}={value}" for key, value in params.items()), *typed]
    if not words:
        raise UserError(
            "-m needs something to sweep over, e.g. drafter=none,ngram or drafter.k=3,5; "
            "without -m this is one run"
        )
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
    _check_size(parsed)
    (points,) = BasicSweeper.split_arguments(parsed, None)
    if not points:
        raise UserError("the sweep has no points: one of its lists is empty; name a value in it")
    return [tuple(point) for point in points]


def _check_size(parsed: Sequence[Override]) -> None:
    """Before the lists, which may be endless, are made."""
    sizes = {word.get_key_element(): _size(word) for word in parsed}
    if prod(sizes.values()) > MOST_POINTS:
        largest = max(sizes, key=lambda key: sizes[key])
        raise UserError(
            f"the sweep has more than {MOST_POINTS} points, most of them of {largest}; name fewer"
        )


def _size(word: Override) -> int:
    """How many values it gives its key; beyond `MOST_POINTS` nobody counts."""
    if not word.is_discrete_sweep():
        return 1
    return sum(1 for _ in islice(word.sweep_iterator(), MOST_POINTS + 1))


def _check_shown(args: argparse.Namespace, composed: DictConfig) -> None:
    """A config with unset keys may be shown: that is how one sees them."""
    HydraConfig.instance().set_config(composed)
    job = without_hydra(composed)
    shown = job if args.cfg == "job" else composed
    if args.package and OmegaConf.select(shown, args.package) is None:
        raise UserError(
            f"--package {args.package}: the config has no {args.package}; "
            "name a group or key of it, e.g. --package drafter"
        )
    if args.cfg != "hydra" and not OmegaConf.missing_keys(job):
        to_config(job)
