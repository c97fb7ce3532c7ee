"""Tables of the checks: Amdahl, learning curves, decisions, the paper's numbers, and the runs."""

from collections.abc import Iterator
from dataclasses import replace

from analysis.arms import SAVED
from analysis.records import (
    AmdahlCheck,
    Cell,
    CurveTest,
    Decision,
    Interval,
    Report,
    Row,
    Run,
    Source,
    Table,
)
from analysis.words import label, measured, number, printed

CURVE_DIGITS = 4
SAVED_NAMES = {"generation": "generation, equal tokens", "tokens": "fewer tokens"}


def check_tables(report: Report) -> tuple[Table, ...]:
    """Those with at least one row."""
    tables = (
        _amdahl(report),
        _saved(report),
        _curves(report),
        _decisions(report),
        _statements(report),
        _runs(report),
    )
    return tuple(table for table in tables if table.rows)


def _amdahl(report: Report) -> Table:
    header = (
        "Arm", "R", "alpha", "Gen. speedup", "Step speedup",
        "Bound (alpha)", "Bound (engine step)", "Predicted", "c(k)",
    )  # fmt: skip
    rows = tuple(Row(_amdahl_cells(check), _group(check)) for check in report.checks)
    notes = (
        "bound: 1 / (R / alpha + 1 - R); engine step: tokens per engine step instead of alpha, "
        "lower where a drafter often drafts nothing; the lower of the two holds, 1x where neither "
        "is known; predicted: from the generation speedup",
        *(f"ERROR: {error}" for error in report.errors),
    )
    return Table("amdahl", "Amdahl check", header, rows, notes)


def _saved(report: Report) -> Table:
    header = ("Arm", *(SAVED_NAMES.get(part, part) for part in SAVED), "step")
    rows = []
    for check in report.checks:
        cells = [_cell(check, check.saved_s[part], "s") for part in SAVED]
        whole = _cell(check, check.step_saved_s, "s")
        rows.append(Row((label(check.label), *cells, whole), _group(check)))
    note = "seconds per step that each part gave; what is not generation is the residual"
    return Table("saved", "Where the saved time comes from", header, tuple(rows), (note,))


def _curves(report: Report) -> Table:
    header = ("Arm", "Curve", "Points", "Difference", "p", "Could have seen", "Verdict")
    rows = tuple(Row(_curve_cells(test), test.title) for test in report.curves)
    notes = tuple(
        dict.fromkeys(f"standard error from: {test.noise}" for test in report.curves if test.noise)
    )
    about = "difference: arm minus autoregressive, paired by step; could have seen: with 80 % power"
    return Table("curves", "Learning curves", header, rows, (about, *notes))


def _decisions(report: Report) -> Table:
    header = (
        "Question", "Asked of", "Known from", "Acceptance", "Break-even, c(k)", "Gen. speedup",
        "Step speedup", "Saved (s/step)", "Paid after (steps)", "In words",
    )  # fmt: skip
    rows = tuple(Row(_decision_cells(d), _titled(d.title, d.source)) for d in report.decisions)
    notes = (
        "step speedup of a length: what its generation speedup gives at the share R; of an init: "
        "as measured",
        "estimated: acceptance from a longer draft's position rates, c(k) on a line between "
        "measured lengths",
        "saved by online adaptation: generation less draft training, against the same arm offline",
    )
    return Table("decisions", "What to do", header, rows, notes)


def _decision_cells(decision: Decision) -> tuple[Cell, ...]:
    def cell(value: Interval | None, unit: str = "", digits: int | None = None) -> Cell:
        return _from(decision.source, measured(value, unit, digits))

    return (
        label(decision.question),
        label(decision.case),
        label(decision.basis),
        cell(decision.acceptance, digits=2),
        cell(decision.cost, digits=2),
        cell(decision.generation, "x"),
        cell(decision.step, "x"),
        cell(decision.saved_s, "s"),
        cell(decision.paid_steps, digits=0),
        label(decision.text),
    )


def _statements(report: Report) -> Table:
    rows = tuple(
        Row(
            (
                label(s.text),
                Cell(number(s.value, 3), "paper", Interval(s.value)),
                printed(s.printed),
            )
        )
        for s in report.statements
    )
    header = ("What the paper's numbers say", "computed", "printed")
    return Table("paper", "The paper's numbers, computed", header, rows)


def _runs(report: Report) -> Table:
    said: dict[str, list[str]] = {}
    for problem in report.problems:
        text = f"left out: {problem.text}" if problem.left_out else problem.text
        said.setdefault(problem.run, []).append(text)
    rows = tuple(Row(_run_cells(run, said.get(run.name, []))) for run in report.runs)
    header = ("Run", "Experiment", "Drafter", "Seed", "Steps", "Commit", "Remarks")
    return Table("runs", "Runs", header, rows)


def _run_cells(run: Run, remarks: list[str]) -> tuple[Cell, ...]:
    words = (
        run.name, run.experiment, run.drafter, run.seed, str(len(run.steps)),
        (run.git_commit or "unknown")[:10], "; ".join(dict.fromkeys(remarks)),
    )  # fmt: skip
    return tuple(label(word) for word in words)


def _amdahl_cells(check: AmdahlCheck) -> tuple[Cell, ...]:
    return (label(check.label), *_figures(check))


def _figures(check: AmdahlCheck) -> Iterator[Cell]:
    yield _cell(check, check.share)
    yield _cell(check, check.acceptance)
    for value in (check.generation, check.step, check.bound, check.engine_bound, check.predicted):
        yield _cell(check, value, "x")
    yield _cell(check, check.cost)


def _cell(check: AmdahlCheck, value: Interval | None, unit: str = "") -> Cell:
    return _from(check.source, measured(value, unit))


def _from(source: Source, cell: Cell) -> Cell:
    """A measured cell as what it is; empty ones stay empty."""
    return replace(cell, kind="paper") if cell.kind == "ours" and source == "paper" else cell


def _curve_cells(test: CurveTest) -> tuple[Cell, ...]:
    p_value = None if test.p_value is None else Interval(test.p_value)
    detectable = None if test.detectable is None else Interval(test.detectable)
    return (
        label(test.label),
        label(test.metric),
        label(str(test.points)),
        measured(test.difference, digits=CURVE_DIGITS),
        measured(p_value),
        measured(detectable, digits=CURVE_DIGITS),
        label(test.verdict),
    )


def _group(check: AmdahlCheck) -> str:
    return _titled(check.title, check.source)


def _titled(title: str, source: str) -> str:
    return f"{title} (paper)" if source == "paper" else title
