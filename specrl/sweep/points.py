"""The points of a sweep: which there are, checked before the first starts."""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, flag_override

from specrl.config import mistakes
from specrl.config.door import to_config
from specrl.config.signature import run_folder
from specrl.errors import UserError
from specrl.sweep.point import PointTask

LEARNED_ONLY = re.compile(r"[+~]*(init|adaptation)[.=]")


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


def point_of(task: PointTask) -> Point:
    """The point without its config."""
    return Point(task.overrides, task.config.drafter.name, task.folder)


def checked_tasks(
    loader: ConfigLoader, master: DictConfig, points: Sequence[Sequence[str]]
) -> list[PointTask]:
    """The points that lists of overrides make of the sweep's config, all of them checked.

    Arms whose drafter does not learn leave out init and adaptation if another arm has them, so
    that a sweep over inits has its autoregressive arm in it. Raises `UserError`, one line that
    begins with the overrides, for the first point that no run can start with.
    """
    composed = [_composed(loader, master, words) for words in points]
    if any(_learned(config) for config in composed):
        for number, words in enumerate(points):
            own = [word for word in words if not LEARNED_ONLY.match(word)]
            if not _learned(composed[number]) and len(own) < len(words):
                composed[number] = _composed(loader, master, own)
    return [_checked(config) for config in composed]


def checked_run(composed: DictConfig) -> PointTask:
    """The one run of a composed config, with `hydra` in it. Raises `UserError`, one line."""
    words = as_written(composed.hydra.overrides.task)
    HydraConfig.instance().set_config(composed)  # ${hydra:...} in a user's own file
    config = to_config(without_hydra(composed))
    return PointTask(config, run_folder(config), tuple(words))


def _composed(loader: ConfigLoader, master: DictConfig, words: Sequence[str]) -> DictConfig:
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
