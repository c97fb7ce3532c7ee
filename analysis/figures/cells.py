"""Tables of speedup cells as the heatmaps draw them: one number, and where it is from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from analysis.paper import Paper
from analysis.records import GridCell

Basis = Literal["printed", "reconstructed", "interpolated", "measured", "simulated"]


@dataclass(frozen=True)
class HeatCell:
    """Speedup at column `x`, row `y`; with `high`, only the range speedup..high is known."""

    x: float
    y: float
    speedup: float
    basis: Basis
    high: float | None = None


def feasible(k: float, acceptance: float) -> bool:
    """k draft tokens and the bonus token are all that one step can give."""
    return acceptance <= k + 1


def rollout_cells(grid: Sequence[GridCell]) -> list[HeatCell]:
    """Rollout speedups of Figure 3: x is k, y the acceptance length."""
    cells = [cell for cell in grid if cell.figure == "acceptance"]
    return _known((c.k, c.acceptance, c.rollout, cast(Basis, c.basis)) for c in cells)


def end_to_end_cells(grid: Sequence[GridCell], paper: Paper) -> list[HeatCell]:
    """Step speedups of Figure 3. A cell whose rollout alone the paper prints is reconstructed."""
    printed = {(c.k, c.acceptance) for c in paper.acceptance_cells if c.end_to_end is not None}
    cells = [cell for cell in grid if cell.figure == "acceptance"]
    return _known((c.k, c.acceptance, c.end_to_end, _step_basis(c, printed)) for c in cells)


def scale_cells(grid: Sequence[GridCell], model: str) -> list[HeatCell]:
    """Rollout speedups of Figure 4 for one model: x is the policy lag, y the number of GPUs."""
    cells = [cell for cell in grid if cell.figure == "scale" and cell.model == model]
    return _known((c.lag, c.gpus, c.rollout, cast(Basis, c.basis)) for c in cells)


def _known(
    cells: Iterable[tuple[float | None, float | None, float | None, Basis]],
) -> list[HeatCell]:
    """Those of (x, y, speedup, basis) in which nothing is None."""
    return [
        HeatCell(x, y, speedup, basis)
        for x, y, speedup, basis in cells
        if x is not None and y is not None and speedup is not None
    ]


def _step_basis(cell: GridCell, printed: set[tuple[int | None, float | None]]) -> Basis:
    if cell.basis == "printed" and (cell.k, cell.acceptance) not in printed:
        return "reconstructed"
    return cast(Basis, cell.basis)
