"""A sweep, expanded and checked before its first point starts."""

import argparse
import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override

from specrl.config import mistakes, tree
from specrl.config.door import to_config
from specrl.config.signature import run_folder
from specrl.errors import UserError

CONFIG_NAME = "train"


@dataclass(frozen=True)
class Point:
    """One run of a sweep; several points may share a folder (k under drafter=none)."""

    overrides: tuple[str, ...]
    drafter: str
    folder: Path


def checked_points(flags: Sequence[str], overrides: Sequence[str]) -> list[Point]:
    """What `specrl FLAGS OVERRIDES` sweeps over, in its order; [] where it is no sweep.

    Raises `UserError`, one line with the overrides of the point, for the first that cannot start,
    and for a config that --cfg cannot show or no run can start with.
    """
    args = get_args_parser().parse_args([*flags, *overrides])
    if args.info or args.shell_completion or args.hydra_help:
        return []
    with _config_loader(args.config_path, args.config_dir) as loader:
        name = args.config_name or CONFIG_NAME
        if args.cfg:
            _check_shown(args, loader.load_configuration(name, list(overrides), RunMode.RUN))
            return []
        master = loader.load_configuration(name, list(overrides), RunMode.MULTIRUN)
        if not args.multirun and master.hydra.mode != RunMode.MULTIRUN:
            return []
        return [_checked(loader, master, words) for words in _expanded(loader, master)]


def as_written(overrides: Sequence[str]) -> list[str]:
    """The overrides as they were typed: an interpolation in one is the config's to resolve."""
    words = OmegaConf.to_container(overrides, resolve=False)
    assert isinstance(words, list)
    return [str(word) for word in words]


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


def _expanded(loader: ConfigLoader, master: DictConfig) -> list[list[str]]:
    params = master.hydra.sweeper.params or {}
    words = [f"{key}={value}" for key, value in params.items()]
    parser = OverridesParser.create(config_loader=loader)
    parsed = parser.parse_overrides([*words, *as_written(master.hydra.overrides.task)])
    (points,) = BasicSweeper.split_arguments(parsed, None)
    return points


def _check_shown(args: argparse.Namespace, composed: DictConfig) -> None:
    """A config with unset keys may be shown: that is how one sees them."""
    HydraConfig.instance().set_config(composed)
    job = _without_hydra(composed)
    shown = job if args.cfg == "job" else composed
    if args.package and OmegaConf.select(shown, args.package) is None:
        raise UserError(
            f"--package {args.package}: the config has no {args.package}; "
            "name a group or key of it, e.g. --package drafter"
        )
    if args.cfg != "hydra" and not OmegaConf.missing_keys(job):
        to_config(job)


def _without_hydra(composed: DictConfig) -> DictConfig:
    cfg = copy.deepcopy(composed)
    with flag_override(cfg, ["readonly", "struct"], False):
        del cfg["hydra"]
    return cfg


def _checked(loader: ConfigLoader, master: DictConfig, words: list[str]) -> Point:
    try:
        composed = loader.load_sweep_config(master, words)
        HydraConfig.instance().set_config(composed)  # ${hydra:...} in a user's own file
        config = to_config(_without_hydra(composed))
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(f"{' '.join(words)}: {mistakes.explain(error)}") from error
    return Point(tuple(words), config.drafter.name, run_folder(config))
