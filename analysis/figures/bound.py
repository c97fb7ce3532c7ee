"""Measured step speedups against what Amdahl's law allows (arXiv:2604.26779, section 2.2)."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures.picture import Absent, Picture
from analysis.figures.style import AMBER, BLUE, INK, ORANGE, RULE, house_style, start
from analysis.figures.words import short, times
from analysis.records import AmdahlCheck

ROW_IN, HEADING_IN = 0.33, 0.2
ABOVE_IN = 0.23
"""From a pair to the title of the next family, above the pair's own words."""
NOTHING = Absent("a matched pair of arms", "specrl -m drafter=none,eagle3 experiment=rl_zero")


def measured_against_bound(checks: Sequence[AmdahlCheck]) -> Picture:
    """A row a matched pair: measured step speedup, what its generation speedup predicts, bound.

    The paper's own rows have hollow dots. A measured speedup that breaks its bound is a cross.
    """
    name, title = "speedup_against_bound", "Measured step speedup against the Amdahl bound"
    if not checks:
        return Picture(name, title, "", title, None, (NOTHING,))
    lines = _lines(checks)
    with house_style():
        figure = start(0.9 + ROW_IN * len(checks) + HEADING_IN * (len(lines) - len(checks)))
        axes = figure.subplots()
        for height, line in lines:
            if isinstance(line, str):
                _words(axes, height, line, INK, weight="bold")
            else:
                _row(axes, height, line)
        axes.set(xlabel="step speedup over autoregressive decoding (×)", yticks=[])
        axes.set_ylim(-0.5 * ROW_IN, lines[0][0] + 0.75 * HEADING_IN)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(_limits(checks))
        figure.legend(
            handles=_key(checks), loc="outside lower left", ncols=2, columnspacing=1.0,
            handlelength=1.4,
        )  # fmt: skip
    caption = (
        "Lines: 95 % intervals. Bound: 1 / (R/α + 1 − R), with generation's share R and the "
        "acceptance length α, or tokens per engine step where those are fewer; predicted: the same "
        "with the measured generation speedup for α."
    )
    return Picture(name, title, caption, _alt(title, checks), figure)


def _lines(checks: Sequence[AmdahlCheck]) -> list[tuple[float, str | AmdahlCheck]]:
    """From the top down, each with its height in inches: a family's title, then its pairs."""
    lines: list[tuple[float, str | AmdahlCheck]] = []
    height, below = 0.0, ""
    for check in reversed(checks):
        title = f"{check.title} (paper)" if check.source == "paper" else check.title
        if below not in ("", title):
            lines.append((height - ROW_IN + ABOVE_IN, below))
            height += HEADING_IN
        lines.append((height, check))
        height, below = height + ROW_IN, title
    lines.append((height - ROW_IN + ABOVE_IN, below))
    return lines[::-1]


def _row(axes: Axes, row: float, check: AmdahlCheck) -> None:
    bound = check.limit.value
    axes.plot(1.0, row, marker="|", markersize=5, markeredgewidth=0.8, color=RULE)
    axes.hlines(row, 1.0, bound, color=RULE, linewidth=0.8)
    axes.plot(bound, row, marker="|", markersize=9, markeredgewidth=1.6, color=INK)
    axes.plot(
        check.predicted.value, row, marker="D", markersize=4.6, linestyle="none",
        markerfacecolor="none", markeredgecolor=AMBER, markeredgewidth=1.3,
    )  # fmt: skip
    step = check.step
    colour = ORANGE if check.violation else BLUE
    if step.low is not None and step.high is not None:
        axes.hlines(row, step.low, step.high, color=colour, linewidth=1.6)
    axes.plot(
        step.value, row, marker="X" if check.violation else "o", linestyle="none", color=colour,
        markersize=6 if check.violation else 4,
        markerfacecolor="#ffffff" if check.source == "paper" and not check.violation else colour,
        zorder=4,
    )  # fmt: skip
    words = f"{short(check.label)}: {times(step.value)}, bound {times(bound)}"
    _words(axes, row, words, ORANGE if check.violation else INK)


def _words(axes: Axes, row: float, words: str, colour: str, weight: str = "normal") -> None:
    axes.annotate(
        words, (0, row), xycoords=("axes fraction", "data"),
        xytext=(0, 6 if weight == "normal" else 0), textcoords="offset points", fontsize=7,
        va="bottom", color=colour, fontweight=weight,
    )  # fmt: skip


def _limits(checks: Sequence[AmdahlCheck]) -> tuple[float, float]:
    points = [1.0]
    for check in checks:
        points += [found.value for found in (check.step, check.predicted, check.limit)]
        points += [end for end in (check.step.low, check.step.high) if end is not None]
    room = 0.05 * (max(points) - min(points))
    return min(points) - room, max(points) + room


def _key(checks: Sequence[AmdahlCheck]) -> list[Line2D]:
    sources = {check.source for check in checks if not check.violation}
    marks = [
        ("ours" in sources, "o", BLUE, BLUE, "measured"),
        ("paper" in sources, "o", "#ffffff", BLUE, "measured (paper)"),
        (any(check.violation for check in checks), "X", ORANGE, ORANGE, "above its bound"),
        (True, "D", "none", AMBER, "predicted"),
        (True, "|", INK, INK, "Amdahl bound"),
    ]
    return [
        Line2D([], [], linestyle="none", marker=marker, markerfacecolor=fill,
               markeredgecolor=edge, label=label, markersize=6 if marker == "|" else 4.5)
        for shown, marker, fill, edge, label in marks
        if shown
    ]  # fmt: skip


def _alt(title: str, checks: Sequence[AmdahlCheck]) -> str:
    rows = []
    for check in checks:
        broken = ", above its bound" if check.violation else ""
        rows.append(
            f"{check.title} {check.label} ({check.source}): measured {times(check.step.value)}, "
            f"predicted {times(check.predicted.value)}, bound {times(check.limit.value)}{broken}"
        )
    return f"{title}. " + "; ".join(rows) + "."
