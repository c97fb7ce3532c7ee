"""Numbers as text, and the cells of tables."""

from math import floor, log10

from analysis.records import Cell, Interval

EMPTY = Cell("-", "empty")
SIGNIFICANT = 3
MOST_DECIMALS = 2


def number(value: float, digits: int | None = None) -> str:
    """With so many decimals; None: three significant digits, but 2 decimals at most."""
    if digits is None:
        digits = MOST_DECIMALS
        if abs(value) >= 1:
            digits = max(0, SIGNIFICANT - 1 - floor(log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text if float(text) else text.removeprefix("-")


def with_unit(text: str, unit: str) -> str:
    """Only x is written: seconds stand in headers."""
    return f"{text}x" if unit == "x" else text


def interval_text(interval: Interval, unit: str = "", digits: int | None = None) -> str:
    """`1.35x [1.31, 1.40]`; the decimals are those of the value."""
    digits = MOST_DECIMALS if unit == "x" and digits is None else digits
    text = with_unit(number(interval.value, digits), unit)
    if interval.low is None or interval.high is None:
        return text
    decimals = len(text.rstrip("x").partition(".")[2])
    return f"{text} [{number(interval.low, decimals)}, {number(interval.high, decimals)}]"


def label(text: str) -> Cell:
    return Cell(text)


def measured(interval: Interval | None, unit: str = "", digits: int | None = None) -> Cell:
    """One of our numbers; "-" for None."""
    if interval is None:
        return EMPTY
    return Cell(interval_text(interval, unit, digits), "ours", interval, unit)


def printed(value: float | None, unit: str = "", digits: int = 2) -> Cell:
    """A number of the paper's as it prints it; "-" where it prints none."""
    if value is None:
        return EMPTY
    text = with_unit(number(value, digits), unit)
    return Cell(text, "paper", Interval(value), unit)


def refused(why: str) -> Cell:
    return Cell("not compared", "refused", note=why)
