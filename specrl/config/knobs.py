"""Every knob with its type, default and help text, read from the schemas and the YAML tree."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_origin

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf

from specrl.config import tree
from specrl.config.store import SCHEMAS
from specrl.config.train import TrainConfig

REQUIRED = "required"


@dataclass(frozen=True)
class Knob:
    """A key of the config. `default` is YAML text or "required", `choice` "group=name" or ""."""

    key: str
    type: str
    default: str
    help: str
    choice: str = ""


def run_knobs() -> list[Knob]:
    """The knobs that belong to no group: steps, seed, evaluation.every ..."""
    config = OmegaConf.structured(TrainConfig)
    return [knob for knob in _walk(config, "", "") if knob.key.split(".")[0] not in tree.groups()]


def choice_knobs(group: str, name: str) -> list[Knob]:
    """The knobs of one choice, with the defaults of its YAML file."""
    return list(_walk(_composed(group, name), f"{group}.", f"{group}={name}"))


@cache
def all_knobs() -> tuple[Knob, ...]:
    """Every knob of every choice, then those of the run itself."""
    chosen = [
        knob
        for group, choices in tree.groups().items()
        if group not in tree.OVERLAYS
        for choice in choices
        for knob in choice_knobs(group, choice.name)
    ]
    return (*chosen, *run_knobs())


def listing() -> str:
    """Every knob as a line of text under its choice; tests/knobs.txt holds the agreed state."""
    lines: list[str] = []
    section = None
    for knob in all_knobs():
        if knob.choice != section:
            section = knob.choice
            lines.append(f"\n[{section or 'run'}]")
        lines.append(f"{knob.key}: {knob.type} = {knob.default}")
    return "\n".join(lines).lstrip() + "\n"


def _parsed(group: str, name: str) -> dict[str, Any]:
    text = next(choice.text for choice in tree.groups()[group] if choice.name == name)
    parsed = yaml.safe_load(text)
    assert isinstance(parsed, dict)
    return parsed


def _schema_path(parsed: dict[str, Any]) -> str:
    return str(parsed["defaults"][0]).removeprefix("/").removesuffix("@_here_")


def _composed(group: str, name: str) -> DictConfig:
    parsed = _parsed(group, name)
    values = {key: value for key, value in parsed.items() if key != "defaults"}
    merged = OmegaConf.merge(OmegaConf.structured(SCHEMAS[_schema_path(parsed)]), values)
    assert isinstance(merged, DictConfig)
    return merged


def _walk(node: DictConfig, prefix: str, choice: str) -> Iterator[Knob]:
    schema = OmegaConf.get_type(node)
    assert is_dataclass(schema)
    helps = field_docs(schema)
    for field in fields(schema):
        key = prefix + field.name
        value = None if OmegaConf.is_missing(node, field.name) else node._get_node(field.name)
        if isinstance(value, DictConfig) and is_dataclass(OmegaConf.get_type(value)):
            yield from _walk(value, f"{key}.", choice)
            continue
        default = REQUIRED if value is None else flow_text(value)
        yield Knob(key, _type_name(field.type), default, helps.get(field.name, ""), choice)


def flow_text(node: Any) -> str:
    """A node as one line of YAML, interpolations as they are written."""
    plain = OmegaConf.to_container(OmegaConf.create({"value": node}), resolve=False)
    assert isinstance(plain, dict)
    value = plain["value"]
    if value == MISSING:
        return REQUIRED
    dumped = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__name__
    return re.sub(r"[\w.]+\.(\w+)", r"\1", str(annotation))  # without the modules


@cache
def field_docs(schema: type) -> dict[str, str]:
    """The docstring under each field, base classes included."""
    docs: dict[str, str] = {}
    for cls in reversed(schema.__mro__):
        if is_dataclass(cls):
            docs.update(_own_docs(cls))
    return docs


def _own_docs(cls: type) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, below in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[statement.target.id] = inspect.cleandoc(str(below.value.value))
    return found
