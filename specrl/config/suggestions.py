"""What a mistyped key or choice may have meant."""

import difflib
import re
from collections.abc import Iterable
from functools import cache

from specrl.config import tree
from specrl.config.knobs import Knob, all_knobs


def near(word: str, known: Iterable[str]) -> str | None:
    """The closest of the known words, None when nothing is close."""
    return next(iter(difflib.get_close_matches(word, list(known), 1, 0.6)), None)


def near_key(key: str) -> str | None:
    """A key or group that was probably meant: same last part elsewhere, else a similar spelling.

    Below a group only what follows its name is compared: all of its keys begin alike.
    """
    keys = list(_by_key())
    last = key.rsplit(".", 1)[-1]
    same = [known for known in keys if known.rsplit(".", 1)[-1] == last]
    if len(same) == 1:
        return same[0]
    group, dot, rest = key.partition(".")
    if not dot or not keys_of(group):
        return near(key, keys if dot else [*keys, *tree.groups()])
    below = near(rest, [known.removeprefix(f"{group}.") for known in keys_of(group)])
    return f"{group}.{below}" if below else None


def keys_of(group: str) -> list[str]:
    """The keys of all choices of a group, or of a section of the run."""
    return [key for key in _by_key() if key.startswith(f"{group}.")]


def section(key: str) -> str | None:
    """The first knob under a key that has knobs of its own (evaluation -> evaluation.every)."""
    return next((known for known in _by_key() if key and known.startswith(f"{key}.")), None)


def knob(key: str) -> Knob | None:
    """The knob of that key; list positions such as learner.cores[0] count as the list."""
    found = _by_key().get(re.sub(r"\[.*", "", key))
    return found[0] if found else None


def choices_with(key: str) -> list[str]:
    """The choices ("drafter=ngram") that have the key."""
    return [found.choice for found in _by_key().get(key, [])]


@cache
def _by_key() -> dict[str, list[Knob]]:
    table: dict[str, list[Knob]] = {}
    for entry in all_knobs():
        table.setdefault(entry.key, []).append(entry)
    return table
