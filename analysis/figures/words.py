"""Words on figures: names cut to what fits, plain numbers."""

import re
from typing import Final

from analysis.records import Interval

LABEL_CHARACTERS: Final = 34


def short(label: str, characters: int = LABEL_CHARACTERS) -> str:
    """One line of at most `characters`, cut in the middle: both ends of a run's name tell."""
    line = " ".join(label.split())
    if len(line) <= characters:
        return line
    front = (characters - 1) // 2
    return f"{line[:front]}…{line[len(line) - (characters - 1 - front) :]}"


def seconds(value_s: float, scale_s: float) -> str:
    """`value_s` with the digits that a step of `scale_s` seconds deserves."""
    return f"{value_s:.{1 if scale_s >= 10 else 2 if scale_s >= 1 else 4}f}"


def times(speedup: float) -> str:
    return f"{speedup:.2f}×"


def slug(text: str) -> str:
    """`text` as a part of a file name: letters, digits and hyphens only, at most 48 of them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48] or "unnamed"


def within(interval: Interval, scale: float = 1.0, digits: int = 2, unit: str = "×") -> str:
    """The number and, where there is one, its 95 % interval: "1.41× [1.36, 1.46]"."""
    text = f"{scale * interval.value:.{digits}f}{unit}"
    if interval.low is None or interval.high is None:
        return text
    return f"{text} [{scale * interval.low:.{digits}f}, {scale * interval.high:.{digits}f}]"
