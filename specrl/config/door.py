"""The door: a composed DictConfig in, plain checked dataclasses out."""

from dataclasses import fields, is_dataclass

from omegaconf import DictConfig, OmegaConf

from specrl.config import combinations, mistakes
from specrl.config.bounds import seed
from specrl.config.knobs import flow_text
from specrl.config.train import TrainConfig
from specrl.errors import UserError


def to_config(cfg: DictConfig) -> TrainConfig:
    """The config as dataclasses. Raises `UserError`, one line, for what no run can start with."""
    try:
        config = _to_object(cfg)
    except UserError:
        raise
    except mistakes.COMPOSITION_ERRORS as error:
        raise UserError(mistakes.explain(error)) from error
    if not isinstance(config, TrainConfig):
        raise UserError("--config-name names a config without /schema/train in its defaults list")
    if config.init.name == "auto":
        config.init.name = "dapo" if config.drafter.learned else "none"
    combinations.check(config)
    return config


def _to_object(cfg: DictConfig) -> object:
    _refuse_unknown(cfg, "")
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise UserError(mistakes.not_set(missing[0]))
    if OmegaConf.get_type(cfg) is TrainConfig:
        seed("seed", cfg.seed)  # else one of the seeds that follow it would be named
    return OmegaConf.to_object(cfg)


def _refuse_unknown(node: DictConfig, prefix: str) -> None:
    """Only dataclass nodes are closed; free-form dicts such as rollout.engine_args stay open."""
    schema = OmegaConf.get_type(node)
    if not is_dataclass(schema):
        return
    known = {field.name for field in fields(schema)}
    for name in map(str, node):
        key = f"{prefix}{name}"
        child = node._get_node(name)
        if name not in known:
            raise UserError(mistakes.unknown_key(key, flow_text(child)))
        if isinstance(child, DictConfig) and not child._is_missing() and not child._is_none():
            _refuse_unknown(child, f"{key}.")
