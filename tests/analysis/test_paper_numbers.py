"""Every derived number of the paper, recomputed from its raw numbers to the printed precision."""

import pytest

from analysis.amdahl import paper_checks
from analysis.decisions import WHICH_K, paper_decisions
from analysis.grid import paper_grid, printed_costs
from analysis.paper import REGIMES, load_paper
from analysis.statements import paper_statements, share_needed
from specrl.algo.amdahl import step_speedup, verification_cost

PAPER = load_paper()
STATEMENTS = {statement.key: statement for statement in paper_statements(PAPER)}
CHECKS = {check.regime: check for check in paper_checks(PAPER)}


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("column", ["ar", "spec"])
def test_table_1_overall_is_the_sum_of_its_stages(regime: str, column: str) -> None:
    seconds = PAPER.stages[regime][column]
    assert sum(seconds.stages.values()) == pytest.approx(seconds.overall, abs=0.05)


@pytest.mark.parametrize(("regime", "printed"), [("rl_think", 1.35), ("rl_zero", 1.41)])
def test_table_1_step_speedups(regime: str, printed: float) -> None:
    assert round(CHECKS[regime].step.value, 2) == printed
    assert PAPER.stages[regime]["spec"].step_speedup == printed


@pytest.mark.parametrize(("regime", "generation"), [("rl_think", 1.54), ("rl_zero", 1.77)])
def test_table_1_generation_speedups_of_its_caption(regime: str, generation: float) -> None:
    assert round(CHECKS[regime].generation.value, 2) == generation


def test_table_1_shares_of_the_text() -> None:
    shares = [CHECKS[regime].share.value for regime in REGIMES]
    assert [round(share, 2) for share in shares] == [0.72, 0.66]
    columns = [PAPER.stages[regime]["ar"] for regime in REGIMES]
    rest = [(c.logprob + c.training) / c.overall for c in columns]
    assert [round(share, 2) for share in rest] == [0.27, 0.32]


@pytest.mark.parametrize("regime", REGIMES)
def test_table_2_speedups_follow_from_its_seconds(regime: str) -> None:
    cells = PAPER.drafters[regime]
    baseline = cells["ar"].generation
    assert baseline is not None
    for cell in cells.values():
        assert cell.generation is not None
        assert round(baseline / cell.generation, 1) == cell.speedup


@pytest.mark.parametrize("regime", REGIMES)
def test_tables_1_to_5_agree_on_the_arm_that_they_share(regime: str) -> None:
    cells = [
        PAPER.inits[regime]["dapo"],
        PAPER.lengths[regime][3],
        PAPER.online[regime]["dapo", "offline"],
    ]
    assert {(cell.acceptance, cell.speedup) for cell in cells} == {
        (PAPER.drafters[regime]["eagle3"].acceptance, cells[0].speedup)
    }
    assert PAPER.inits[regime]["ultrachat"] == PAPER.online[regime]["ultrachat", "offline"]
    # RL-Think prints 1.53 and 1.54 for 133.6 / 87.0.
    assert CHECKS[regime].generation.value == pytest.approx(cells[0].speedup, abs=0.0061)


def test_bounds_and_predictions() -> None:
    bounds = {regime: CHECKS[regime].bound for regime in REGIMES}
    assert bounds["rl_think"].value == pytest.approx(1.854, abs=5e-4)
    assert round(bounds["rl_zero"].value, 2) == 1.86
    assert [round(CHECKS[r].predicted.value, 2) for r in REGIMES] == [1.34, 1.40]
    assert all(not check.violation for check in CHECKS.values())


def test_the_bound_of_rl_think_says_that_it_is_quoted_rounded_up() -> None:
    text = STATEMENTS["bound.rl_think"].text
    assert "1.854x" in text
    assert "1.853 to 1.856" in text
    assert "quoted as 1.86x" in text


def test_costs_of_table_4() -> None:
    costs = {
        regime: [round(verification_cost(c.acceptance or 0, c.speedup), 2) for c in cells.values()]
        for regime, cells in PAPER.lengths.items()
    }
    assert costs == {"rl_zero": [1.88, 3.02, 4.18], "rl_think": [1.81, 3.85, 4.90]}
    assert round(STATEMENTS["cost.rl_think.7"].value, 2) == 4.90


def test_what_speculation_saves_adds_up_to_the_step() -> None:
    for check in CHECKS.values():
        saved = sum(part.value for part in check.saved_s.values())
        assert saved == pytest.approx(check.baseline_s["step"] - check.arm_s["step"])
    outside = {k: v.value for k, v in CHECKS["rl_think"].saved_s.items() if k != "generation"}
    assert sum(outside.values()) == pytest.approx(1.3)


def test_the_async_figures_leave_4_7_seconds_unexplained() -> None:
    assert STATEMENTS["async.unexplained"].value == pytest.approx(4.7)
    assert round(75.0 / 60.5, 2) == PAPER.async_rl_think["spec"].step_speedup
    assert round(STATEMENTS["async.explained"].value, 2) == 1.15
    assert round(STATEMENTS["async.bound"].value, 2) == 1.16


def test_the_headline_needs_a_generation_share_of_0_84() -> None:
    assert round(STATEMENTS["headline.share"].value, 2) == 0.84
    assert step_speedup(share_needed(2.5, 3.5), 3.5) == pytest.approx(2.5)


def test_figure_3_implies_one_generation_share() -> None:
    for cell in PAPER.acceptance_cells:
        if cell.end_to_end is not None:
            predicted = step_speedup(PAPER.generation_share, cell.rollout)
            assert predicted == pytest.approx(cell.end_to_end, abs=0.0051)


def test_figure_3s_grid_prints_what_the_paper_prints_and_marks_the_rest() -> None:
    grid = {(c.k, c.acceptance): c for c in paper_grid(PAPER) if c.figure == "acceptance"}
    assert len(grid) == len(PAPER.grid_k) * len(PAPER.grid_acceptance)
    assert (grid[7, 5.0].rollout, grid[7, 5.0].basis) == (4.07, "printed")
    assert grid[7, 4.0].basis == "reconstructed"
    assert grid[7, 4.0].rollout == pytest.approx(4.0 / printed_costs(PAPER)[7])
    assert grid[5, 4.0].basis == "interpolated"
    assert not grid[3, 5.0].feasible
    assert grid[3, 5.0].rollout is None


def test_k_3_is_the_best_length_of_both_regimes() -> None:
    lengths = [d for d in paper_decisions(PAPER) if d.question == WHICH_K]
    best = [d for d in lengths if d.text.startswith("use it")]
    assert [decision.case for decision in best] == 2 * ["eagle3 k=3 dapo offline"]
    losing = [d for d in lengths if d.generation.value < 1]
    assert all(d.acceptance.value < d.cost.value for d in losing)
    assert [(d.title, d.case) for d in losing] == [
        ("RL-Think", f"eagle3 k={k} dapo offline") for k in (5, 7)
    ]
