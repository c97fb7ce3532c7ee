"""Figures 3 and 4: which cells are grey, which are printed, and that the rest is arithmetic."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures.cells import end_to_end_cells, rollout_cells
from analysis.figures.collection import scale_pictures
from analysis.figures.heatmap import Panel, lag_heatmap
from analysis.figures.style import INFEASIBLE, house_style
from analysis.grid import paper_grid
from analysis.paper import load_paper

PAPER = load_paper()
GRID = paper_grid(PAPER)
DRAFT_LENGTH, SCALE = scale_pictures(GRID, PAPER)
C3 = (3 / 2.72 + 4 / 3.62) / 2
C7 = (5 / 4.07 + 8 / 6.49) / 2
R = 0.65


def drawn(figure: Figure | None) -> Figure:
    assert figure is not None
    with house_style():
        FigureCanvasAgg(figure).draw()
    return figure


def tiles(figure: Figure, panel: int) -> dict[tuple[int, int], Rectangle]:
    """Each cell's rectangle by column and row; what it is stands in its label."""
    found = {}
    for patch in figure.axes[panel].patches:
        if isinstance(patch, Rectangle) and str(patch.get_label()).startswith("_"):
            _, column, row = str(patch.get_label()).split("-")
            found[int(column), int(row)] = patch
    return found


@pytest.mark.parametrize("panel", [0, 1])
def test_cells_are_grey_exactly_where_more_than_k_and_one_tokens_were_needed(panel: int) -> None:
    cells = tiles(drawn(DRAFT_LENGTH.figure), panel)
    assert len(cells) == len(PAPER.grid_k) * len(PAPER.grid_acceptance)
    grey = {place for place, tile in cells.items() if to_hex(tile.get_facecolor()) == INFEASIBLE}
    infeasible = {
        (column, row)
        for column, k in enumerate(PAPER.grid_k)
        for row, acceptance in enumerate(PAPER.grid_acceptance)
        if acceptance > k + 1
    }
    assert grey == infeasible
    assert 0 < len(grey) < len(cells)


@pytest.mark.parametrize(
    ("k", "acceptance", "speedup"),
    [(1, 2.0, 2.0 / (1.5 / 1.45)), (3, 2.0, 2.0 / C3), (7, 6.0, 6.0 / C7),
     (5, 4.0, 4.0 / ((C3 + C7) / 2))],
)  # fmt: skip
def test_reconstructed_cells_are_the_arithmetic(k: int, acceptance: float, speedup: float) -> None:
    rollout = {(cell.x, cell.y): cell for cell in rollout_cells(GRID)}[k, acceptance]
    step = {(cell.x, cell.y): cell for cell in end_to_end_cells(GRID, PAPER)}[k, acceptance]
    assert rollout.speedup == pytest.approx(speedup)
    assert step.speedup == pytest.approx(1 / (R / speedup + 1 - R))
    assert rollout.basis == step.basis == ("interpolated" if k == 5 else "reconstructed")


def test_only_what_the_paper_prints_is_bold_and_framed() -> None:
    figure = drawn(DRAFT_LENGTH.figure)
    bold = [
        [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"]
        for axes in figure.axes
    ]
    assert sorted(bold[0]) == ["1.45", "2.72", "3.62", "4.07", "6.49"]
    assert sorted(bold[1]) == ["1.70", "1.89", "1.96", "2.22"]
    framed = [sum(not patch.get_fill() for patch in axes.patches) for axes in figure.axes]
    assert framed == [5, 4]


def test_interpolated_cells_carry_their_mark_and_the_key_explains_it() -> None:
    figure = drawn(DRAFT_LENGTH.figure)
    marked = [text.get_text() for text in figure.axes[0].texts if text.get_text().startswith("~")]
    assert len(marked) == sum(acceptance <= 6 for acceptance in PAPER.grid_acceptance)
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("interpolated" in words for words in key)
    assert any("printed" in words for words in key)


def test_cells_of_gpus_and_lag_that_nobody_knows_are_hatched() -> None:
    figure = drawn(SCALE.figure)
    hatched = [tile for tile in tiles(figure, 0).values() if tile.get_hatch()]
    assert len(hatched) == 16 - len(PAPER.scale_cells)
    ranges = {text.get_text() for text in figure.axes[1].texts}
    assert ranges == {"2.8–\n3.2"}


def test_no_cells_give_no_picture() -> None:
    picture = lag_heatmap([Panel("(a)", ())], (32,), (0,))
    assert picture.figure is None
    assert picture.missing
