"""How every figure looks: sizes, palette, one way to start one.

Colours are Okabe and Ito's, which stay apart for all common colour vision; line styles and markers
repeat what a colour says, so that a grey print reads too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.figures.font import families

COLUMN_IN: Final = 3.3
"""A column of a two-column page, in inches."""

INK: Final = "#26282b"
"""Text and axes. Nothing else has this colour: inline SVG puts the page's own text colour there."""

RULE: Final = "#8f9297"
"""Grid lines and references: readable on white and on a dark page."""

INFEASIBLE: Final = "#b4b6ba"
BLUE: Final = "#0072b2"
ORANGE: Final = "#d55e00"
GREEN: Final = "#009e73"
PINK: Final = "#cc79a7"
SKY: Final = "#56b4e9"
AMBER: Final = "#e69f00"

SERIES: Final = (BLUE, ORANGE, GREEN, PINK, SKY, AMBER)
LINES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P")

STAGES: Final[Mapping[str, str]] = {
    "data": PINK,
    "prepare": AMBER,
    "generation": BLUE,
    "logprob": SKY,
    "training": GREEN,
    "other": RULE,
}

SPEEDUPS: Final = LinearSegmentedColormap.from_list(
    "speedups", ["#f7fbff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"]
)
"""One hue that only gets darker: order survives without colour vision and in print."""

RC: Final[Mapping[Any, Any]] = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": RULE,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.2,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "text.parse_math": False,
}
"""Type 42 keeps a PDF's text text. No mathtext: a run's name may hold a dollar sign."""


@contextmanager
def house_style() -> Iterator[None]:
    """Within it, matplotlib draws and saves as every figure here should."""
    with matplotlib.rc_context({**RC, "font.family": families()}):
        yield


def start(height_in: float, width_in: float = COLUMN_IN) -> Figure:
    """A figure that lays itself out. Call within `house_style`."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def style_of(index: int) -> dict[str, Any]:
    """Colour, line style and marker of the series number `index`; the first 36 all differ."""
    around, place = divmod(index, len(SERIES))
    shifted = (place + around) % len(SERIES)
    return {"color": SERIES[place], "linestyle": LINES[shifted], "marker": MARKERS[shifted]}


def number_of(label: str, order: Sequence[str], otherwise: int) -> int:
    """The place of a series in `order`, so that an arm looks the same in every figure."""
    return order.index(label) if label in order else otherwise


def horizontal_grid(axes: Axes) -> None:
    axes.grid(axis="y")
    axes.tick_params(length=2.5)


def step_axis(axes: Axes) -> None:
    axes.set_xlabel("RL step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def from_zero(axes: Axes, values: Iterable[float]) -> None:
    axes.set_ylim(0.0, 1.08 * max(max(values), 1e-9))


def from_one(axes: Axes, values: Iterable[float]) -> None:
    """A y axis for acceptance lengths: they begin at 1, the bonus token."""
    axes.set_ylim(1.0, 1.0 + 1.12 * max(max(values) - 1.0, 0.05))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
