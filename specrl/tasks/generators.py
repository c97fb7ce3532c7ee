"""Distinct questions from reasoning-gym's arithmetic generators."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import localcontext
from importlib import import_module
from importlib.util import find_spec
from random import Random
from types import ModuleType
from typing import Any

import xxhash

from specrl.errors import UserError

_PACKAGE = "reasoning_gym.arithmetic."
# A question of gsm_symbolic takes 0.2 s to make and thousands take gigabytes.
_TOO_SLOW = frozenset({"gsm_symbolic"})
# Draws per wanted question after which a generator counts as exhausted.
_DRAWS_PER_QUESTION = 30
_PRECISION = 28  # Python's own default


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


def entry_of(generator: Any, index: int) -> Any:
    """Question `index` of a reasoning-gym data set, the same whatever was made before it.

    Some generators set the thread's decimal precision, which others compute their answers with.
    """
    with localcontext(prec=_PRECISION):
        return generator[index]


def held_out(question: str) -> bool:
    """True for the quarter of all questions that only validate, whatever the config."""
    return xxhash.xxh3_64_intdigest(question.encode()) % 4 == 0


def split_questions(
    generators: dict[str, Any], train_size: int, validation_size: int
) -> tuple[list[Question], list[Question]]:
    """Training and validation questions with different texts, each an even mix of the generators,
    in a fixed order.

    Raises `UserError` when a generator cannot make its share.
    """
    shares = [-(-size // len(generators)) for size in (train_size, validation_size)]
    drawn = [_drawn(name, made, *shares) for name, made in generators.items()]
    train, validation = zip(*drawn, strict=True)
    return _mixed(train)[:train_size], _mixed(validation)[:validation_size]


def _mixed(columns: Sequence[Sequence[Question]]) -> list[Question]:
    return [question for row in zip(*columns, strict=True) for question in row]


def _drawn(
    name: str, generator: Any, train_size: int, validation_size: int
) -> tuple[list[Question], list[Question]]:
    seen: set[str] = set()
    train: list[Question] = []
    validation: list[Question] = []
    for index in range(_DRAWS_PER_QUESTION * (train_size + validation_size)):
        if len(train) == train_size and len(validation) == validation_size:
            return train, validation
        entry = entry_of(generator, index)
        text = entry["question"]
        kind, size = (validation, validation_size) if held_out(text) else (train, train_size)
        if text not in seen and len(kind) < size:
            kind.append(Question(name, index, text, str(entry["answer"])))
        seen.add(text)
    raise UserError(
        f"task.train_size + task.validation_size asks for {train_size} and {validation_size} "
        f"questions of {name}, which made only {len(train)} and {len(validation)} different ones; "
        "lower them or raise task.difficulty"
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
