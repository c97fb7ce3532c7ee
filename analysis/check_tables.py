"""Tables of the checks: Amdahl, learning curves, decisions, the paper's numbers, and the runs."""

from collections.abc import Iterator

from analysis.arms import SAVED
from analysis.records import AmdahlCheck, Cell, CurveTest, Interval, Report, Row, Run, Table
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
        _advice(report),
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
        "lower where a drafter often drafts nothing; predicted: from the generation speedup",
        *(f"ERROR: {error}" for error in report.errors),
    )
    return Table("amdahl", "Amdahl check", header, rows, notes)


def _saved(report: Report) -> Table:
    header = ("Arm", *(SAVED_NAMES.get(part, part) for part in SAVED), "step")
    rows = []
    for check in report.checks:
        cells = [_cell(check, check.saved_s[part], "s") for part in SAVED]
        whole = Interval(check.baseline_s["step"] - check.arm_s["step"])
        rows.append(Row((label(check.label), *cells, _cell(check, whole, "s")), _group(check)))
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
        "k", "Basis", "Acceptance", "c(k) = break-even", "Gen. speedup", "Step speedup", "In words"
    )  # fmt: skip
    rows = tuple(
        Row(
            (
                label(str(d.k)),
                label(d.basis),
                *(
                    Cell(number(value, 2), d.source, Interval(value))
                    for value in (d.acceptance, d.cost)
                ),
                *(
                    Cell(f"{value:.2f}x", d.source, Interval(value), "x")
                    for value in (d.generation, d.step)
                ),
                label(d.text),
            ),
            _titled(d.title, d.source),
        )
        for d in report.decisions
    )
    note = (
        "estimated: acceptance from a longer draft's position rates, c(k) on a line between "
        "measured lengths"
    )
    return Table("decisions", "What each draft length would give", header, rows, (note,))


def _advice(report: Report) -> Table:
    rows = tuple(
        Row((label(a.topic), label(a.text)), _titled(a.title, a.source)) for a in report.advice
    )
    return Table("advice", "Advice", ("Question", "Answer"), rows)


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
    cell = measured(value, unit)
    if value is None or check.source == "ours":
        return cell
    return Cell(cell.text, "paper", value, unit)


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
