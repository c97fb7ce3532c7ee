"""Distinct questions from reasoning-gym's arithmetic generators."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from random import Random
from types import ModuleType
from typing import Any

from specrl.errors import UserError

_PACKAGE = "reasoning_gym.arithmetic."
# A question of gsm_symbolic takes 0.2 s to make and thousands take gigabytes.
_TOO_SLOW = frozenset({"gsm_symbolic"})
# Draws per wanted question after which a generator counts as exhausted.
_DRAWS_PER_QUESTION = 30


@dataclass(frozen=True)
class Question:
    """One generated question; `index` makes the same one again in its generator."""

    generator: str
    index: int
    text: str
    answer: str


def make_generators(
    names: list[str], difficulty: int, overrides: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """reasoning-gym data sets by name.

    Every range that a generator's curriculum knows (digits, terms, ...) reaches from its easiest
    level up to level `difficulty`, counted from 0 and ended at its last one; a generator without a
    curriculum keeps its defaults. `overrides` are config values of reasoning-gym over those.
    Generators share no random stream. Raises `UserError` for a name that is not one of
    reasoning-gym's arithmetic generators and for values that a generator does not take.
    """
    known = arithmetic_names()
    if not names:
        raise UserError("task.generators is empty; name at least one, e.g. [chain_sum]")
    for name in names:
        if name not in known:
            choices = ", ".join(known)
            raise UserError(f"task.generators={name} is not known; use some of {choices}")
    return {
        name: _make(name, difficulty, overrides, Random(f"{seed}/{name}").getrandbits(48))
        for name in names
    }


def arithmetic_names() -> list[str]:
    """Names of the generators of reasoning-gym's arithmetic category, whose scorers are safe."""
    datasets = _factory().DATASETS.items()
    names = (n for n, (kind, _) in datasets if kind.__module__.startswith(_PACKAGE))
    return sorted(set(names) - _TOO_SLOW)


def distinct_questions(generators: dict[str, Any], count: int) -> list[Question]:
    """`count` questions with different texts, an even mix of the generators, in a fixed order.

    Raises `UserError` when a generator cannot make its share.
    """
    share = -(-count // len(generators))
    columns = [list(_distinct(name, made, share)) for name, made in generators.items()]
    mixed = [question for row in zip(*columns, strict=True) for question in row]
    return mixed[:count]


def _distinct(name: str, generator: Any, count: int) -> Iterator[Question]:
    seen: set[str] = set()
    for index in range(_DRAWS_PER_QUESTION * count):
        entry = generator[index]
        if entry["question"] not in seen:
            seen.add(entry["question"])
            yield Question(name, index, entry["question"], str(entry["answer"]))
        if len(seen) == count:
            return
    raise UserError(
        f"task.train_size + task.validation_size asks for {count} questions of {name}, which made "
        f"only {len(seen)} different ones; lower them or raise task.difficulty"
    )


def _make(name: str, difficulty: int, overrides: Mapping[str, Any], seed: int) -> Any:
    factory = _factory()
    known = [field.name for field in fields(factory.DATASETS[name][1])]
    for key in overrides:
        if key not in known:
            choices = ", ".join(known)
            raise UserError(f"task.generator_args.{key} is not known to {name}; use {choices}")
    values = {**_curriculum_values(name, difficulty), **overrides}
    try:
        return factory.create_dataset(name, **{**values, "seed": seed, "size": 2**31})
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"task.generator_args={dict(overrides)} for {name}: {error}") from None


def _curriculum_values(name: str, difficulty: int) -> dict[str, Any]:
    factory = _factory()
    if not factory.has_curriculum(name):
        return {}
    curriculum = factory.create_curriculum(name)
    for attribute in curriculum.attributes.values():
        curriculum.set_attr_level(attribute.name, min(difficulty, len(attribute.levels) - 1))
    return dict(vars(curriculum.generate_configuration()))


def _factory() -> Any:
    """`reasoning_gym.factory`, also without pycosat.

    Only its logic puzzles, which no task offers, use pycosat; it has no wheel, and set-up leaves
    it out so that it needs no C compiler.
    """
    if "pycosat" not in sys.modules and find_spec("pycosat") is None:
        sys.modules["pycosat"] = ModuleType("pycosat")
    return import_module("reasoning_gym.factory")
