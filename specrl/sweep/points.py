"""The points of a sweep: which there are, checked before the first starts."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, flag_override

from specrl.config import mistakes, tree
from specrl.config.cluster import SlurmConfig, outside_of_job
from specrl.config.door import to_config
from specrl.config.overrides import key_of
from specrl.config.signature import run_folder
from specrl.config.train import TrainConfig
from specrl.errors import UserError
from specrl.sweep.point import PointTask

LEARNED_ONLY = ("init", "adaptation")


@dataclass(frozen=True)
class Point:
    """One run of a sweep; several points may share a folder (k under drafter=none)."""

    overrides: tuple[str, ...]
    drafter: str
    folder: Path

    @property
    def label(self) -> str:
        """What was typed for it."""
        return " ".join(self.overrides)


def counted(number: int) -> str:
    """As in: 1 point, 2 points."""
    return f"{number} point" + ("" if number == 1 else "s")


def letter(number: int) -> str:
    """A short name for the number, from 0: A to Z, A1 to Z1, ..."""
    return ascii_uppercase[number % 26] + (str(number // 26) if number >= 26 else "")


def point_of(task: PointTask) -> Point:
    """The point without its config."""
    return Point(task.overrides, task.config.drafter.name, task.folder)


def within_choice(word: str) -> bool:
    """Whether an override sets a knob of a group's choice, which other choices may not have."""
    group, dot, _ = key_of(word).partition(".")
    return bool(dot) and group in tree.groups() and not word.startswith(("+", "~"))


def checked_tasks(
    loader: ConfigLoader, master: DictConfig, points: Sequence[tuple[str, ...]]
) -> list[PointTask]:
    """The points that lists of overrides make of the sweep's config, all of them checked.

    A knob that some of the points have is left out by those that have it not, and so are init and
    adaptation where the drafter does not learn: a sweep over inits has its autoregressive arm in
    it. Raises `UserError`, one line that begins with the overrides, for the first point that no run
    can start with.
    """
    composition = cache(partial(_composed, loader, master))  # points may differ in less
    fitting = [_fitting(composition, words) for words in points]
    known = {key_of(word) for words in fitting for word in words}
    return [
        _checked(composition(tuple(w for w in words if w in fits or key_of(w) not in known)))
        for words, fits in zip(points, fitting, strict=True)
    ]


def _fitting(
    composition: Callable[[tuple[str, ...]], DictConfig], words: tuple[str, ...]
) -> list[str]:
    """The overrides that mean something to the choices of a point."""
    composed = composition(tuple(word for word in words if not within_choice(word)))
    return [word for word in words if _fits(composed, word)]


def _fits(composed: DictConfig, word: str) -> bool:
    key = key_of(word)
    if key.partition(".")[0] in LEARNED_ONLY:
        return _learned(composed)
    return not within_choice(word) or _has(composed, key)


def _has(composed: DictConfig, key: str) -> bool:
    """Whether the config has the key; one of a list's places counts as the list."""
    node: Any = composed
    for name in key.partition("[")[0].split("."):
        if not isinstance(node, DictConfig) or node._is_none() or name not in list(node):
            return False
        node = node._get_node(name)
    return True


def checked_run(composed: DictConfig) -> PointTask:
    """The one run of a composed config, with `hydra` in it. Raises `UserError`, one line."""
    words = as_written(composed.hydra.overrides.task)
    HydraConfig.instance().set_config(composed)  # ${hydra:...} in a user's own file
    config = to_config(without_hydra(composed))
    return PointTask(config, run_folder(config), tuple(words))


def check_here(config: TrainConfig) -> None:
    """Raises `UserError` for a point of a sweep that this machine cannot run."""
    if isinstance(config.cluster, SlurmConfig):
        raise outside_of_job(config.cluster)


def _composed(loader: ConfigLoader, master: DictConfig, words: tuple[str, ...]) -> DictConfig:
    try:
        return loader.load_sweep_config(master, list(words))
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(f"{' '.join(words)}: {mistakes.explain(error)}") from error


def _learned(composed: DictConfig) -> bool:
    return bool(getattr(OmegaConf.get_type(composed._get_node("drafter")), "learned", False))


def _checked(composed: DictConfig) -> PointTask:
    try:
        return checked_run(composed)
    except mistakes.COMPOSITION_ERRORS as error:
        words = as_written(composed.hydra.overrides.task)
        raise UserError(f"{' '.join(words)}: {mistakes.explain(error)}") from error


def without_hydra(composed: DictConfig) -> DictConfig:
    """The job's config alone."""
    cfg = copy.deepcopy(composed)
    with flag_override(cfg, ["readonly", "struct"], False):
        del cfg["hydra"]
    return cfg


def as_written(overrides: Sequence[str]) -> list[str]:
    """The overrides as they were typed: an interpolation in one is the config's to resolve."""
    words = OmegaConf.to_container(overrides, resolve=False)
    assert isinstance(words, list)
    return [str(word) for word in words]


def distinct(tasks: Sequence[PointTask]) -> list[PointTask]:
    """The first of those that share a folder: the others are the same run."""
    return list({task.folder: task for task in reversed(tasks)}.values())[::-1]
