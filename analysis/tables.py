"""Tables 1 to 5 and the async comparison, ours beside the paper's."""

from dataclasses import replace
from itertools import product

from analysis import plan
from analysis.check_tables import check_tables
from analysis.columns import WARMUP_RULE
from analysis.paper import AsyncSeconds, Drafting, Paper
from analysis.records import Arm, ArmKey, Cell, Family, Interval, Match, Report, Row, Table
from analysis.resample import METHOD
from analysis.words import EMPTY, label, measured, printed, refused
from specrl.algo.comparison import STAGES

PER_TOKEN = (
    "our generation speedups are per token, since responses of the arms differ in length; the "
    "paper's are of seconds per step"
)
FLAG = "*"
"""Marks a comparison with something to know about it, which a note says."""

STAGE_ROWS = (*STAGES, "overhead", "step")
STAGE_NAMES = {"logprob": "Log-prob", "step": "Overall"}


def all_tables(report: Report) -> tuple[Table, ...]:
    """Every table of the report, in its order."""
    tables = [
        _table1(report),
        _table2(report),
        _table3(report),
        _table4(report),
        _table5(report),
        _async(report),
    ]
    noted = [replace(t, notes=(*t.notes, *_gaps(t))) for t in tables]
    if report.runs:
        method = WARMUP_RULE.format(n=report.warmup_steps), METHOD
        noted[0] = replace(noted[0], notes=(*noted[0].notes, *method))
    return (*noted, *check_tables(report))


def _table1(report: Report) -> Table:
    header = ("Stage", "AR (s)", "Spec (s)", "paper AR (s)", "paper Spec (s)")
    rows: list[Row] = []
    notes = ["overhead is what the five stages leave of a step; the paper's Overall is their sum"]
    for family in report.families:
        baseline, spec = family.arm(plan.BASELINE), _spec_arm(family)
        if spec is not None and spec.key != plan.SPEC:
            notes.append(f"{family.title}: Spec is {spec.label}")
        rows += [
            Row(_stage_cells(report.paper, family, baseline, spec, stage), family.title)
            for stage in STAGE_ROWS
        ]
        rows.append(Row(_speedup_cells(report.paper, family, spec), family.title))
        rows.append(Row(_share_cells(report.paper, family, baseline, spec), family.title))
    title = "Stage breakdown: seconds per RL step"
    return Table("table1", title, header, tuple(rows), tuple(notes))


def _table2(report: Report) -> Table:
    header = (
        "Method", "Accept. len.", "Gen. (s)", "Speedup (s)", "Speedup (token)",
        "paper accept.", "paper gen. (s)", "paper speedup",
    )  # fmt: skip
    rows = []
    for family in report.families:
        cells = report.paper.drafters.get(family.regime, {})
        named = {"ar": plan.BASELINE, "ngram": plan.NGRAM, "eagle3": plan.SPEC}
        others = [a.key for a in family.arms if a.key.drafter not in {"none", "ngram", "eagle3"}]
        keys: list[tuple[ArmKey, Drafting | None]] = [
            *((key, cells.get(name)) for name, key in named.items()),
            *((key, None) for key in others if not key.max_lag),
        ]
        for key, paper in keys:
            if _shown(family, key, paper is not None):
                rows.append(Row(_drafter_cells(family, key, paper), family.title))
    return Table("table2", "Rollout generation by drafter", header, tuple(rows), (PER_TOKEN,))


def _table3(report: Report) -> Table:
    rows = []
    for family in report.families:
        cells = report.paper.inits.get(family.regime, {})
        others = [
            a.key for a in family.arms
            if _like(a.key, k="3", adaptation="offline") and a.key.init not in plan.INITS
        ]  # fmt: skip
        keys = [*(plan.eagle3(init=init) for init in plan.INITS), *others]
        for key in keys:
            paper = cells.get(key.init or "")
            if _shown(family, key, paper is not None):
                rows.append(_row(family, key, _with_variant(key, str(key.init)), paper))
    title = "Draft initialization (k = 3, offline)"
    return Table("table3", title, HEADER, tuple(rows), (PER_TOKEN,))


def _table4(report: Report) -> Table:
    rows = []
    for family in report.families:
        cells = report.paper.lengths.get(family.regime, {})
        named = [plan.eagle3(k) for k in plan.LENGTHS]
        others = [a.key for a in family.arms if _like(a.key, init="dapo", adaptation="offline")]
        for key in sorted({*named, *others}, key=_by_length):
            paper = None if key.variant else cells.get(_length(key))
            if _shown(family, key, paper is not None):
                rows.append(_row(family, key, _with_variant(key, f"k = {key.k}"), paper))
    header = ("Draft length", *HEADER[1:])
    return Table("table4", "Draft length (dapo init, offline)", header, tuple(rows), (PER_TOKEN,))


def _table5(report: Report) -> Table:
    rows = []
    for family in report.families:
        cells = report.paper.online.get(family.regime, {})
        for init, how in product(plan.INITS, plan.ADAPTATIONS):
            key, paper = plan.eagle3(init=init, adaptation=how), cells.get((init, how))
            if _shown(family, key, paper is not None):
                rows.append(_row(family, key, f"{init}, {how}", paper))
    header = ("Variant", *HEADER[1:])
    return Table("table5", "Online draft adaptation (k = 3)", header, tuple(rows), (PER_TOKEN,))


def _async(report: Report) -> Table:
    header = (
        "Arm", "Exposed gen. (s)", "Step (s)", "Step speedup",
        "paper exposed (s)", "paper step (s)", "paper speedup",
    )  # fmt: skip
    rows = []
    for family in report.families:
        paper = report.paper.async_rl_think if family.regime == "rl_think" else {}
        named = {"ar": ArmKey("none", max_lag=plan.LAG), "spec": plan.eagle3(lag=plan.LAG)}
        known = {key: paper.get(name) for name, key in named.items()}
        for key in dict.fromkeys([*named.values(), *(a.key for a in family.arms if a.key.max_lag)]):
            cells = known.get(key)
            if _shown(family, key, cells is not None):
                rows.append(Row(_async_cells(family, key, cells), family.title))
    note = "exposed generation is what the learner waits for; the rest hides behind training"
    return Table("async", "Asynchronous execution", header, tuple(rows), (note,))


HEADER = ("Initialization", "Acceptance", "Gen. speedup", "Step speedup",
          "paper acceptance", "paper gen. speedup")  # fmt: skip


def _row(family: Family, key: ArmKey, name: str, paper: Drafting | None) -> Row:
    arm, pair = family.arm(key), family.match(key)
    cells = (
        label(name),
        _own(family, key, arm.acceptance if arm else None),
        _speedup(family, key, pair.generation if pair else None),
        _speedup(family, key, pair.step if pair else None),
        printed(paper.acceptance if paper else None),
        printed(paper.speedup if paper else None, "x"),
    )
    return Row(cells, family.title)


def _drafter_cells(family: Family, key: ArmKey, paper: Drafting | None) -> tuple[Cell, ...]:
    arm, pair = family.arm(key), family.match(key)
    baseline = key.drafter == "none"
    return (
        label(key.label),
        EMPTY if baseline else _own(family, key, arm.acceptance if arm else None),
        _own(family, key, arm.stage_s["generation"] if arm else None, "s"),
        EMPTY if baseline else _speedup(family, key, pair.generation_latency if pair else None),
        EMPTY if baseline else _speedup(family, key, pair.generation if pair else None),
        printed(paper.acceptance if paper else None),
        printed(paper.generation if paper else None, "s", 1),
        printed(paper.speedup if paper else None, "x", 1),
    )


def _async_cells(family: Family, key: ArmKey, paper: AsyncSeconds | None) -> tuple[Cell, ...]:
    arm, pair = family.arm(key), family.match(key)
    speedup = EMPTY if key.drafter == "none" else _speedup(family, key, pair.step if pair else None)
    return (
        label(key.label),
        _own(family, key, arm.exposed_s if arm else None, "s"),
        _own(family, key, arm.stage_s["step"] if arm else None, "s"),
        speedup,
        printed(paper.exposed_generation if paper else None, "s", 1),
        printed(paper.step if paper else None, "s", 1),
        printed(paper.step_speedup if paper else None, "x"),
    )


def _stage_cells(
    paper: Paper, family: Family, baseline: Arm | None, spec: Arm | None, stage: str
) -> tuple[Cell, ...]:
    columns = paper.stages.get(family.regime, {})
    seconds = {
        name: {**column.stages, "step": column.overall}.get(stage)
        for name, column in columns.items()
    }
    keys = plan.BASELINE, spec.key if spec else plan.SPEC
    return (
        label(STAGE_NAMES.get(stage, stage.capitalize())),
        *(
            _own(family, key, arm.stage_s[stage] if arm else None, "s")
            for key, arm in zip(keys, (baseline, spec), strict=True)
        ),
        printed(seconds.get("ar"), "s", 1),
        printed(seconds.get("spec"), "s", 1),
    )


def _speedup_cells(paper: Paper, family: Family, spec: Arm | None) -> tuple[Cell, ...]:
    key = spec.key if spec else plan.SPEC
    pair = family.match(key)
    column = paper.stages.get(family.regime, {}).get("spec")
    ours = _speedup(family, key, pair.step if pair else None)
    theirs = printed(column.step_speedup if column else None, "x")
    return label("Step speedup"), EMPTY, ours, EMPTY, theirs


def _share_cells(
    paper: Paper, family: Family, baseline: Arm | None, spec: Arm | None
) -> tuple[Cell, ...]:
    columns = paper.stages.get(family.regime, {})
    shares = {name: column.generation / column.overall for name, column in columns.items()}
    keys = plan.BASELINE, spec.key if spec else plan.SPEC
    return (
        label("Generation share R"),
        *(
            _own(family, key, arm.generation_share if arm else None)
            for key, arm in zip(keys, (baseline, spec), strict=True)
        ),
        printed(shares.get("ar"), "", 3),
        printed(shares.get("spec"), "", 3),
    )


def _spec_arm(family: Family) -> Arm | None:
    """Table 1's arm, or the fastest matched one where it is missing."""
    canonical = family.arm(plan.SPEC)
    if canonical is not None:
        return canonical
    fair = [m for m in family.matches if m.step is not None and not m.arm.key.max_lag]
    return max(fair, key=_step).arm if fair else None


def _own(family: Family, key: ArmKey, value: Interval | None, unit: str = "") -> Cell:
    if value is not None:
        return measured(value, unit)
    if family.arm(key) is not None:
        return EMPTY
    found = next((m for m in family.missing if m.key == key), None)
    return Cell("missing", "missing", note=(found.command or plan.LATER) if found else "")


def _speedup(family: Family, key: ArmKey, value: Interval | None) -> Cell:
    pair = family.match(key)
    if value is None and family.arm(key) is not None:
        return refused(_why(pair))
    cell = _own(family, key, value, "x")
    if pair is None or not pair.cautions:
        return cell
    return replace(cell, text=cell.text + FLAG, note="; ".join(pair.cautions))


def _why(pair: Match | None) -> str:
    if pair is None:
        return "no autoregressive arm to compare with"
    return "; ".join(map(str, pair.differences)) or "; ".join(pair.cautions)


def _gaps(table: Table) -> list[str]:
    """A line for every missing, refused or doubtful cell of the table, each said once."""
    lines: dict[str, None] = {}
    for row in table.rows:
        for cell in row.cells:
            if cell.kind == "missing" and cell.note == plan.LATER:
                lines[f"missing {row.cells[0].text}: {plan.LATER}"] = None
            elif cell.kind == "missing" and cell.note:
                lines[f"missing, made by: {cell.note}"] = None
            elif cell.kind == "refused":
                lines[f"{row.group}, {row.cells[0].text}: not compared ({cell.note})"] = None
            elif cell.kind == "ours" and cell.note:
                lines[f"{FLAG} {cell.note}"] = None
    return list(lines)


def _shown(family: Family, key: ArmKey, in_paper: bool) -> bool:
    """Families beside the first of a regime list what they have, not what they lack."""
    return family.arm(key) is not None or (in_paper and any(m.key == key for m in family.missing))


def _like(key: ArmKey, **wanted: str) -> bool:
    same = all(getattr(key, name) == value for name, value in wanted.items())
    return key.drafter == "eagle3" and not key.max_lag and same


def _with_variant(key: ArmKey, text: str) -> str:
    return f"{text} {key.variant}".strip()


def _by_length(key: ArmKey) -> tuple[int, str, str]:
    return _length(key), key.k or "", key.variant


def _length(key: ArmKey) -> int:
    """The draft length; "auto" comes after every number."""
    return int(key.k) if key.k is not None and key.k.isdigit() else 10**6


def _step(pair: Match) -> float:
    return 0.0 if pair.step is None else pair.step.value
