"""Heatmaps of speedup cells: draft length x acceptance, and GPUs x policy lag."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Patch, Rectangle

from analysis.figures.cells import Basis, HeatCell, feasible
from analysis.figures.picture import Absent, Picture
from analysis.figures.style import INFEASIBLE, RULE, SPEEDUPS, house_style, start

MARKS: Mapping[Basis, tuple[str, str]] = {
    "printed": ("{}", "printed in the paper (bold, in a frame)"),
    "reconstructed": ("{}", "reconstructed: S = α / c(k)"),
    "interpolated": ("~{}", "reconstructed (~), c(k) interpolated between printed k"),
    "measured": ("{}*", "measured here (*)"),
    "simulated": ("{}†", "simulated here (†)"),
}
"""How a cell's number is written, and what the key says of it."""

SAMPLE = "#c6dbef"
DARK_FROM = 0.55
"""Share of the colour range above which white numbers read better than black ones."""


@dataclass(frozen=True)
class Grid:
    """Rows are drawn bottom up. `possible` False makes a cell grey; all else without a cell is
    blank and hatched: not known."""

    xs: Sequence[float]
    ys: Sequence[float]
    x_label: str
    y_label: str
    possible: Callable[[float, float], bool]
    digits: int


@dataclass(frozen=True)
class Panel:
    title: str
    cells: Sequence[HeatCell]


def draft_length_heatmap(
    rollout: Sequence[HeatCell],
    end_to_end: Sequence[HeatCell],
    ks: Sequence[float],
    acceptances: Sequence[float],
    generation_share: float,
) -> Picture:
    """Figure 3 of the paper; cells with acceptance above k + 1 are grey."""
    labels = ("draft length k (tokens)", "acceptance length α (tokens)")
    grid = Grid(ks, acceptances, *labels, feasible, 2)
    panels = [Panel("(a) rollout", rollout), Panel("(b) end to end", end_to_end)]
    return _picture(
        name="figure3_draft_length",
        title="Speedup by draft length and acceptance length",
        caption=(
            "Speedup over autoregressive decoding (×), Qwen3-235B-A22B on 512 GB200 (arXiv:2604."
            "26779, figure 3, simulated there). Cells that the paper does not print follow from "
            "those it does: S = α / c(k), and Amdahl's law with a generation share of "
            f"{generation_share:g} for end to end. Grey: α > k + 1 cannot happen."
        ),
        grid=grid,
        panels=panels,
        missing=Absent("cells of draft length x acceptance", ""),
    )


def lag_heatmap(panels: Sequence[Panel], gpus: Sequence[float], lags: Sequence[float]) -> Picture:
    """Figure 4 of the paper: rollout speedup by GPUs and policy lag, one panel a model."""
    grid = Grid(lags, gpus, "policy lag (steps)", "GPUs", _always, 1)
    return _picture(
        name="figure4_gpus_lag",
        title="Rollout speedup by number of GPUs and policy lag",
        caption=(
            "Rollout speedup (×) at k = 5, α = 4, rollout batch 4096 (arXiv:2604.26779, figure 4, "
            "simulated there). The paper's text gives these cells only, to about ±0.05, and for "
            "the 8B model one range for all sixteen. Hatched: not known."
        ),
        grid=grid,
        panels=panels,
        missing=Absent("cells of GPUs x policy lag", ""),
    )


def _always(x: float, y: float) -> bool:  # noqa: ARG001  # the signature of Grid.possible
    return True


def _picture(
    *, name: str, title: str, caption: str, grid: Grid, panels: Sequence[Panel], missing: Absent
) -> Picture:
    cells = [cell for panel in panels for cell in panel.cells]
    alt = f"{title}. " + " ".join(_spoken(panel, grid) for panel in panels)
    if not cells:
        return Picture(name, title, caption, alt, None, (missing,))
    norm = Normalize(1.0, max(cell.high or cell.speedup for cell in cells))
    with house_style():
        key = _key(cells, grid)
        figure = start(0.75 + 0.235 * len(grid.ys) + 0.145 * len(key))
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(row, panels, strict=True):
            _draw(axes, panel, grid, norm)
            axes.set_xlabel(grid.x_label)
        row[0].set_ylabel(grid.y_label)
        figure.legend(handles=key, loc="outside lower left", handlelength=1.2, labelspacing=0.3)
    return Picture(name, title, caption, alt, figure)


def _draw(axes: Axes, panel: Panel, grid: Grid, norm: Normalize) -> None:
    known = {(cell.x, cell.y): cell for cell in panel.cells}
    for column, x in enumerate(grid.xs):
        for row, y in enumerate(grid.ys):
            cell = known.get((x, y))
            if not grid.possible(x, y):
                _tile(axes, column, row, INFEASIBLE, "infeasible")
            elif cell is None:
                _tile(axes, column, row, "none", "unknown", hatch="///")
            else:
                _draw_cell(axes, (column, row), cell, norm, grid.digits)
    axes.set(xlim=(-0.5, len(grid.xs) - 0.5), ylim=(-0.5, len(grid.ys) - 0.5), title=panel.title)
    axes.set_xticks(range(len(grid.xs)), [f"{x:g}" for x in grid.xs])
    axes.set_yticks(range(len(grid.ys)), [f"{y:g}" for y in grid.ys])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_cell(
    axes: Axes, place: tuple[int, int], cell: HeatCell, norm: Normalize, digits: int
) -> None:
    middle = (cell.speedup + (cell.high or cell.speedup)) / 2
    shade = SPEEDUPS.with_extremes(under="#fdd9c4")(norm(middle))
    _tile(axes, *place, shade, cell.basis)
    printed = cell.basis == "printed"
    colour = "#ffffff" if norm(middle) > DARK_FROM else "#000000"
    if printed:
        _frame(axes, *place, colour)
    axes.text(
        *place, _written(cell, digits), ha="center", va="center", fontsize=7, linespacing=1.0,
        fontweight="bold" if printed else "normal", color=colour,
    )  # fmt: skip


def _tile(
    axes: Axes, column: int, row: int, colour: object, what: str, hatch: str | None = None
) -> None:
    tile = Rectangle(
        (column - 0.5, row - 0.5), 1, 1, facecolor=colour, linewidth=0.6, hatch=hatch,
        edgecolor=RULE if hatch else "#ffffff", label=f"_{what}-{column}-{row}",
    )  # fmt: skip
    axes.add_patch(tile)


def _frame(axes: Axes, column: int, row: int, colour: str) -> None:
    corner = (column - 0.44, row - 0.44)
    axes.add_patch(Rectangle(corner, 0.88, 0.88, fill=False, linewidth=0.9, edgecolor=colour))


def _written(cell: HeatCell, digits: int) -> str:
    if cell.high is not None:
        return f"{cell.speedup:.{digits}f}–\n{cell.high:.{digits}f}"
    return MARKS[cell.basis][0].format(f"{cell.speedup:.{digits}f}")


def _key(cells: Sequence[HeatCell], grid: Grid) -> list[Patch]:
    sources = {cell.basis for cell in cells}
    key = [
        Patch(facecolor=SAMPLE, edgecolor="#000000" if source == "printed" else SAMPLE, label=words)
        for source, (_, words) in MARKS.items()
        if source in sources
    ]
    places = [(x, y) for x in grid.xs for y in grid.ys]
    if not all(grid.possible(*place) for place in places):
        key.append(Patch(facecolor=INFEASIBLE, label="cannot happen: more than k + 1 tokens"))
    return key


def _spoken(panel: Panel, grid: Grid) -> str:
    if not panel.cells:
        return f"{panel.title}: no cells."
    speedups = [cell.speedup for cell in panel.cells]
    printed = sum(cell.basis == "printed" for cell in panel.cells)
    best = max(panel.cells, key=lambda cell: cell.speedup)
    return (
        f"{panel.title}: {len(panel.cells)} cells, {printed} of them printed in the paper, from "
        f"{min(speedups):.2f} to {max(speedups):.2f} times; highest at {grid.x_label} {best.x:g}, "
        f"{grid.y_label} {best.y:g}."
    )
