"""Range checks of config values, one wording for all."""

import difflib
import math
from collections.abc import Iterable

from specrl.errors import UserError


def at_least(key: str, value: float, low: float) -> None:
    """Raises `UserError` unless low <= value < inf."""
    if not low <= value < math.inf:
        raise UserError(f"{key}={value} is out of range; use a value of at least {low}")


def above(key: str, value: float, low: float) -> None:
    """Raises `UserError` unless low < value < inf."""
    if not low < value < math.inf:
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


def not_empty(key: str, value: str) -> None:
    """Raises `UserError` for an empty text."""
    if not value.strip():
        raise UserError(f"{key} is empty; give it a value")
