"""Worked solutions about dates and durations."""

import calendar
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from specrl.tasks.worked_expressions import plain

Metadata = Mapping[str, Any]
DAYS = list(calendar.day_name)
_COUNTED = re.compile(r"(\w+day)s are there|occurrences of (\w+day)|does (\w+day) occur")


def calendar_steps(metadata: Metadata, question: str) -> list[str]:
    """The steps of the question's own kind."""
    kinds: dict[str, Callable[[], list[str]]] = {
        "weekday_offset": lambda: _offset(metadata),
        "weekday_of_date": lambda: _weekday(date.fromisoformat(metadata["target_date"])),
        "weekday_of_date_from_first_date": lambda: _from_first(metadata),
        "recurring_event_day": lambda: _recurring(metadata),
        "count_days": lambda: _count_days(metadata, question),
        "count_business_days": lambda: _business_days(metadata),
        "is_leap_year": lambda: _leap(int(metadata["year"])),
    }
    return kinds[str(metadata["task"])]()


def interval_steps(metadata: Metadata) -> list[str]:
    """Whole days, then the rest in hours, minutes and seconds."""
    start = datetime.fromisoformat(metadata["start_time"])
    end = datetime.fromisoformat(metadata["end_time"])
    kind = str(metadata["task_type"])
    if kind == "date":
        return [f"{start.date()} to {end.date()}: {(end - start).days} days"]
    if kind.startswith("time"):
        return _clock(start, end)
    lines = []
    if start.tzinfo is not None:
        start, end = (moment.astimezone(UTC) for moment in (start, end))
        lines.append(f"In UTC: {start:%Y-%m-%d %H:%M:%S} and {end:%Y-%m-%d %H:%M:%S}")
    whole = start + timedelta(days=(end - start).days)
    lines.append(f"{start.date()} to {whole.date()}: {(whole - start).days} days")
    return [*lines, f"{whole:%H:%M:%S} to {end:%H:%M:%S}: {_hms(end - whole)}"]


def _clock(start: datetime, end: datetime) -> list[str]:
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    before, after = (_seconds(moment - midnight) for moment in (start, end))
    return [
        f"The start is {plain(before)} seconds after midnight",
        f"The end is {plain(after)} seconds after midnight",
        f"{plain(after)} - {plain(before)} = {plain(after - before)} seconds",
    ]


def _seconds(difference: timedelta) -> Decimal:
    return Decimal(difference // timedelta(microseconds=1)) / 1_000_000


def _hms(difference: timedelta) -> str:
    hours, rest = divmod(difference.seconds, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def _shift(day: str, days: int) -> list[str]:
    """`days` counted on from a weekday, whole weeks left out."""
    sign = "-" if days < 0 else "+"
    weeks, rest = divmod(abs(days), 7)
    target = DAYS[(DAYS.index(day) + (rest if days >= 0 else -rest)) % 7]
    return [f"{abs(days)} = 7 * {weeks} + {rest}", f"{day} {sign} {rest} days = {target}"]


def _offset(metadata: Metadata) -> list[str]:
    start = date.fromisoformat(metadata["start_date"])
    return _shift(DAYS[start.weekday()], int(metadata["offset_days"]))


def _weekday(target: date) -> list[str]:
    first = DAYS[date(target.year, 1, 1).weekday()]
    days = target.timetuple().tm_yday - 1
    return [
        f"January 1, {target.year} is a {first}",
        f"{target:%B} {target.day} is {days} days later",
        *_shift(first, days),
    ]


def _from_first(metadata: Metadata) -> list[str]:
    target, days = date.fromisoformat(metadata["target_date"]), int(metadata["delta_days"])
    head = f"{target:%B} {target.day} is {days} days after January 1"
    return [head, *_shift(str(metadata["first_day"]), days)]


def _recurring(metadata: Metadata) -> list[str]:
    year, month, wanted = int(metadata["year"]), int(metadata["month"]), str(metadata["weekday"])
    first_weekday, length = calendar.monthrange(year, month)
    first = 1 + (DAYS.index(wanted) - first_weekday) % 7
    days = ", ".join(str(day) for day in range(first, length + 1, 7))
    return [
        f"{calendar.month_name[month]} 1, {year} is a {DAYS[first_weekday]}",
        f"{wanted}s: {days}",
    ]


def _count_days(metadata: Metadata, question: str) -> list[str]:
    start, end = (date.fromisoformat(metadata[key]) for key in ("start_date", "end_date"))
    found = _COUNTED.search(question)
    assert found is not None, question
    wanted = next(name for name in found.groups() if name)
    first = start + timedelta(days=(DAYS.index(wanted) - start.weekday()) % 7)
    if first > end:
        return [f"The first {wanted} is {first}, after {end}"]
    days = (end - first).days
    return [
        f"The first {wanted} is {first}, {days} days before {end}",
        f"{days} = 7 * {days // 7} + {days % 7}",
        f"1 + {days // 7} = {1 + days // 7}",
    ]


def _business_days(metadata: Metadata) -> list[str]:
    start, end = (date.fromisoformat(metadata[key]) for key in ("start_date", "end_date"))
    days = (end - start).days + 1
    weeks, rest = divmod(days, 7)
    names = [DAYS[(start.weekday() + i) % 7] for i in range(rest)]
    more = sum(DAYS.index(name) < 5 for name in names)
    return [
        f"{days} days = 7 * {weeks} + {rest}",
        f"Left over: {', '.join(names) or 'none'}, {more} of them business days",
        f"5 * {weeks} + {more} = {5 * weeks + more}",
    ]


def _leap(year: int) -> list[str]:
    lines = []
    for divisor, meaning in (
        (4, "not a leap year"),
        (100, "a leap year"),
        (400, "not a leap year"),
    ):
        lines.append(f"{year} = {divisor} * {year // divisor} + {year % divisor}")
        if year % divisor:
            return [*lines, f"{year} is {meaning}"]
    return [*lines, f"{year} is a leap year"]
