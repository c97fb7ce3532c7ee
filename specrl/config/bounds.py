"""Range checks of config values, one wording for all."""

import difflib
import math
from collections.abc import Iterable
from pathlib import Path

from specrl.errors import UserError

LARGEST = 10**9  # of any count: whole numbers above it are slips of the hand
MOST_ROLLOUTS = 10**6  # of a step
MOST_PROCESSES = 10**4  # and nodes of a run, which all are laid out one by one
LARGEST_SEED = 2**31 - 1  # what every generator of random numbers here takes


def at_least(key: str, value: float, low: float) -> None:
    """Raises `UserError` unless low <= value < inf, and <= `LARGEST` for a whole number."""
    _finite(key, value)
    if not low <= value:
        raise UserError(f"{key}={value} is out of range; use a value of at least {low}")
    if isinstance(value, int) and value > LARGEST:
        raise UserError(f"{key}={value} is out of range; use a value of at most {LARGEST}")


def processes(key: str, value: int) -> None:
    """Raises `UserError` for a number of processes or nodes that no run has."""
    within(key, value, 1, MOST_PROCESSES)


def seed(key: str, value: int) -> None:
    """Raises `UserError` for what is no seed of every generator."""
    within(key, value, 0, LARGEST_SEED)


def above(key: str, value: float, low: float) -> None:
    """Raises `UserError` unless low < value < inf."""
    _finite(key, value)
    if not low < value:
        raise UserError(f"{key}={value} is out of range; use a value above {low}")


def within(key: str, value: float, low: float, high: float) -> None:
    """Raises `UserError` when value is outside [low, high]."""
    if not low <= value <= high:
        raise UserError(f"{key}={value} is out of range; use a value from {low} to {high}")


def from_to_below(key: str, value: float, low: float, high: float) -> None:
    """Raises `UserError` when value is outside [low, high)."""
    if not low <= value < high:
        raise UserError(
            f"{key}={value} is out of range; use a value of at least {low} and below {high}"
        )


def one_of(key: str, value: str, choices: Iterable[str]) -> None:
    """Raises `UserError` when value is none of the choices."""
    known = list(choices)
    if value not in known:
        near = difflib.get_close_matches(value, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{key}={value} is not known; use one of {', '.join(known)}{hint}")


def _finite(key: str, value: float) -> None:
    if value == math.inf:
        raise UserError(f"{key}={value} is out of range; use a finite value")


def expandable(key: str, value: str | None) -> None:
    """Raises `UserError` for a path below the home of a user who does not exist."""
    try:
        Path(value or "").expanduser()
    except RuntimeError:
        raise UserError(f"{key}={value}: whose home that is is not known; write it out") from None


def not_empty(key: str, value: str) -> None:
    """Raises `UserError` for an empty text."""
    if not value.strip():
        raise UserError(f"{key} is empty; give it a value")
