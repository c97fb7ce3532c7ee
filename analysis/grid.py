"""Figures 3 and 4 as tables of cells: the paper's printed ones and what follows from them."""

from collections.abc import Mapping

import numpy as np

from analysis.paper import Paper, PrintedCell
from analysis.records import GridCell
from specrl.algo.amdahl import step_speedup, verification_cost

MODEL = "qwen3_235b_a22b"


def paper_grid(paper: Paper) -> tuple[GridCell, ...]:
    """Figure 3's whole grid (printed cells, else alpha / c(k)) and Figure 4's printed cells."""
    costs = printed_costs(paper)
    printed = {(cell.k, cell.acceptance): cell for cell in paper.acceptance_cells}
    extra = [key for key in printed if key[1] not in paper.grid_acceptance]
    assert not extra, "the grid holds every printed cell"
    cells = [
        _cell(paper, costs, k, acceptance, printed.get((k, acceptance)))
        for k in paper.grid_k
        for acceptance in paper.grid_acceptance
    ]
    scale = [
        GridCell("scale", MODEL, "printed", gpus=c.gpus, lag=c.lag, rollout=c.rollout)
        for c in paper.scale_cells
    ]
    return (*cells, *scale)


def printed_costs(paper: Paper) -> Mapping[int, float]:
    """c(k) = alpha / S of the printed cells of Figure 3, the mean where a k has several."""
    by_k: dict[int, list[float]] = {}
    for cell in paper.acceptance_cells:
        assert cell.k is not None, "Figure 3's cells have a draft length"
        assert cell.acceptance is not None, "Figure 3's cells have an acceptance length"
        cost = verification_cost(cell.acceptance, cell.rollout)
        by_k.setdefault(cell.k, []).append(cost)
    return {k: float(np.mean(costs)) for k, costs in sorted(by_k.items())}


def _cell(
    paper: Paper, costs: Mapping[int, float], k: int, acceptance: float, printed: PrintedCell | None
) -> GridCell:
    if acceptance > k + 1:
        return GridCell("acceptance", MODEL, "infeasible", k, acceptance, feasible=False)
    if printed is not None:
        rollout, basis = printed.rollout, "printed"
    else:
        rollout = acceptance / float(np.interp(k, list(costs), list(costs.values())))
        basis = "reconstructed" if k in costs else "interpolated"
    end_to_end = printed.end_to_end if printed else None
    if end_to_end is None:
        end_to_end = step_speedup(paper.generation_share, rollout)
    return GridCell(
        "acceptance", MODEL, basis, k, acceptance, rollout=rollout, end_to_end=end_to_end
    )
