"""Where drafts fit: acceptance by draft position, place and length of the response, and lag."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from analysis.figures.picture import Absent, Picture
from analysis.figures.style import (
    from_one,
    horizontal_grid,
    house_style,
    number_of,
    start,
    style_of,
)
from analysis.figures.words import short
from analysis.records import ViewRow


@dataclass(frozen=True)
class View:
    """What one picture shows. `command` would make a run that has this view."""

    key: str
    title: str
    x_label: str
    y_label: str
    command: str


RATE = "acceptance rate (%)"
LENGTH = "acceptance length (tokens)"
ONE_RUN = "specrl drafter=eagle3"
VIEWS: Mapping[str, View] = {
    view.key: view
    for view in (
        View("position", "by draft position", "draft position", RATE, ONE_RUN),
        View("decile", "by place in the response", "tenth of the response", LENGTH, ONE_RUN),
        View("length", "by response length", "response length (tokens)", LENGTH, ONE_RUN),
        View("lag", "by policy lag", "policy versions behind the newest", LENGTH, ONE_RUN),
        View(
            "entropy", "by policy entropy", "mean entropy of the response (nats)", LENGTH, ONE_RUN
        ),
        View("token_entropy", "by token entropy", "entropy of the token (nats)", LENGTH, ONE_RUN),
    )
}
BEGINS = re.compile(r"\d+(\.\d+)?")
FEW_DRAFTS = 30
"""Points that rest on fewer drafts are hollow."""


def acceptance_view(
    rows: Sequence[ViewRow], view: str, title: str = "", order: Sequence[str] = ()
) -> Picture:
    """One view, a line an arm. Rows of other views, and of other families than `title`, are left
    out ("" takes all). `order` has the labels of all arms, for their colours."""
    about = VIEWS[view]
    kept = [row for row in rows if row.view == view and title in ("", row.title)]
    name = f"acceptance_{view}"
    heading = f"Acceptance {about.title}" + (f": {title}" if title else "")
    if not kept:
        absent = Absent(f"acceptance {about.title}", about.command)
        return Picture(name, heading, "", heading, None, (absent,))
    lines = _lines(kept)
    ticks = {row.bucket: _tick(row) for row in sorted(kept, key=_place)}
    with house_style():
        two_rows = any("\n" in tick for tick in ticks.values())
        figure = start(2.2 + 0.14 * len(lines) + 0.12 * two_rows)
        axes = figure.subplots()
        for number, (label, line) in enumerate(lines.items()):
            _line(axes, line, list(ticks), number_of(label, order, number), label)
        _dress(axes, about, list(ticks.values()))
        if about.y_label == LENGTH:
            from_one(axes, [row.value if row.high is None else row.high for row in kept])
        figure.legend(loc="outside lower left")
    return Picture(name, heading, _caption(kept), _alt(heading, lines), figure)


def _lines(rows: Sequence[ViewRow]) -> dict[str, list[ViewRow]]:
    """By arm, in the order in which arms first appear; titles told only where there are several."""
    several = len({row.title for row in rows}) > 1
    lines: dict[str, list[ViewRow]] = {}
    for row in rows:
        label = f"{row.title}, {row.label}" if several else row.label
        lines.setdefault(label, []).append(row)
    return {label: sorted(line, key=_place) for label, line in lines.items()}


def _line(
    axes: Axes, line: Sequence[ViewRow], buckets: Sequence[str], number: int, label: str
) -> None:
    look = style_of(number)
    scale = 100.0 if line[0].view == "position" else 1.0
    xs = [buckets.index(row.bucket) for row in line]
    axes.plot(xs, [scale * row.value for row in line], label=short(label), **look)
    for x, row in zip(xs, line, strict=True):
        if row.low is not None and row.high is not None:
            axes.vlines(x, scale * row.low, scale * row.high, color=look["color"], linewidth=0.8)
        if row.count < FEW_DRAFTS:
            axes.plot(
                x, scale * row.value, marker=look["marker"], color=look["color"],
                markerfacecolor="#ffffff", linestyle="none", zorder=4,
            )  # fmt: skip


def _place(row: ViewRow) -> tuple[float, int, str]:
    """Buckets in the order of where they begin: arms need not have the same ones."""
    begins = BEGINS.match(row.bucket)
    return float(begins[0]) if begins else 0.0, row.order, row.bucket


def _tick(row: ViewRow) -> str:
    """The bucket's name for people; as it is where a run has named it in another way."""
    parts = row.bucket.split("-")
    if row.view in {"position", "decile"} and row.bucket.isdecimal():
        return str(int(row.bucket) + 1)
    if row.view == "length" and len(parts) == 2 and all(part.isdecimal() for part in parts):
        return f"{int(parts[0])}–\n{int(parts[1])}"
    return row.bucket.replace("-", "–\n") if "-" in row.bucket else row.bucket


def _dress(axes: Axes, about: View, ticks: Sequence[str]) -> None:
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlim(-0.4, len(ticks) - 0.6)
    axes.set(xlabel=about.x_label, ylabel=about.y_label)
    if about.y_label == RATE:
        axes.set_ylim(0, 104)
    horizontal_grid(axes)


def _caption(rows: Sequence[ViewRow]) -> str:
    words = "Pooled over the counted steps, token-weighted."
    if rows[0].view == "position":
        words += " Rates are of the drafts that reached the position."
    else:
        words += " The bonus token counts: 1 means that no drafted token was accepted."
    if any(row.low is not None for row in rows):
        words += " Bars: 95 % intervals over steps."
    if any(row.count < FEW_DRAFTS for row in rows):
        words += f" Hollow: fewer than {FEW_DRAFTS} drafts."
    return words


def _alt(heading: str, lines: Mapping[str, Sequence[ViewRow]]) -> str:
    told = []
    for label, line in lines.items():
        points = ", ".join(f"{row.bucket}: {row.value:.2f}" for row in line)
        told.append(f"{label}: {points}")
    return f"{heading}. " + "; ".join(told) + "."
