"""Range checks of config values, one wording for all."""

from collections.abc import Iterable

from specrl.errors import UserError


def at_least(key: str, value: float, low: float) -> None:
    """Raises `UserError` when value < low."""
    if value < low:
        raise UserError(f"{key}={value} is below {low}; use a value of at least {low}")


def above(key: str, value: float, low: float) -> None:
    """Raises `UserError` when value <= low."""
    if value <= low:
        raise UserError(f"{key}={value} must be above {low}")


def within(key: str, value: float, low: float, high: float) -> None:
    """Raises `UserError` when value is outside [low, high]."""
    if not low <= value <= high:
        raise UserError(f"{key}={value} is outside [{low}, {high}]")


def one_of(key: str, value: str, choices: Iterable[str]) -> None:
    """Raises `UserError` when value is none of the choices."""
    known = list(choices)
    if value not in known:
        raise UserError(f"{key}={value} is not known; use one of {', '.join(known)}")
