"""Composes a config inside a program, through the same checks as the command line."""

from collections.abc import Sequence

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from omegaconf import DictConfig

from specrl.config import mistakes, tree
from specrl.config.door import to_config
from specrl.config.store import register
from specrl.config.train import TrainConfig
from specrl.errors import UserError


def load(overrides: Sequence[str] = ()) -> TrainConfig:
    """What `specrl OVERRIDES` would run with. Raises `UserError`, one line, for every mistake."""
    mistakes.check_overrides(overrides)
    try:
        cfg = compose(overrides)
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(mistakes.explain(error)) from error
    return to_config(cfg)


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The composed tree, unchecked; Hydra's own errors come through."""
    register()
    with initialize_config_module(tree.PACKAGE, version_base="1.3"):
        return hydra_compose("train", list(overrides))
