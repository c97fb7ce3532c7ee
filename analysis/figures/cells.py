"""Tables of speedup cells as the heatmaps draw them: one number, and where it is from."""

from collections.abc import Sequence
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
    return [
        HeatCell(cell.k, cell.acceptance, cell.rollout, cast(Basis, cell.basis))
        for cell in grid
        if cell.figure == "acceptance"
        and cell.k is not None
        and cell.acceptance is not None
        and cell.rollout is not None
    ]


def end_to_end_cells(grid: Sequence[GridCell], paper: Paper) -> list[HeatCell]:
    """Step speedups of Figure 3. A cell whose rollout alone the paper prints is reconstructed."""
    printed = {(c.k, c.acceptance) for c in paper.acceptance_cells if c.end_to_end is not None}
    return [
        HeatCell(cell.k, cell.acceptance, cell.end_to_end, _step_basis(cell, printed))
        for cell in grid
        if cell.figure == "acceptance"
        and cell.k is not None
        and cell.acceptance is not None
        and cell.end_to_end is not None
    ]


def scale_cells(grid: Sequence[GridCell], model: str) -> list[HeatCell]:
    """Rollout speedups of Figure 4 for one model: x is the policy lag, y the number of GPUs."""
    return [
        HeatCell(cell.lag, cell.gpus, cell.rollout, cast(Basis, cell.basis))
        for cell in grid
        if cell.figure == "scale"
        and cell.model == model
        and cell.lag is not None
        and cell.gpus is not None
        and cell.rollout is not None
    ]


def _step_basis(cell: GridCell, printed: set[tuple[int | None, float | None]]) -> Basis:
    if cell.basis == "printed" and (cell.k, cell.acceptance) not in printed:
        return "reconstructed"
    return cast(Basis, cell.basis)
