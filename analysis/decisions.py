"""What a measurement advises: draft length, online adaptation, and when a draft init has paid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.arms import match
from analysis.paper import REGIMES, TITLES, Paper
from analysis.records import AmdahlCheck, Arm, ArmKey, Basis, Decision, Family, Interval
from specrl.algo.amdahl import step_speedup, verification_cost

WHICH_K: Final = "Which k?"
BREAK_EVEN: Final = "From which acceptance on?"
ONLINE: Final = "Does online adaptation pay?"
INIT: Final = "When has the init paid?"
NEVER: Final = " and no step is faster for it: it never pays"

Measured = Mapping[int, tuple[Arm, AmdahlCheck]]
CLEAR_GAIN = 1.02
"""A predicted step speedup below this is not worth the trouble."""

HOUR_S = 3600.0


def family_decisions(
    family: Family, checks: Sequence[AmdahlCheck], warmup_steps: int
) -> tuple[Decision, ...]:
    """Rows of the decision table; a question that no pair of runs speaks to is left out.

    `checks` may hold those of other families. Every kind of draft has a row per length up to the
    longest measured one, asynchronous arms none: how much of their generation is exposed changes
    with its speed.
    """
    own = {check.label: check for check in checks if _is_of(check, family)}
    found: list[Decision] = []
    for measured in _kinds(family, own).values():
        found += _with_advice(_lengths(family.title, measured))
    found += _online(family, warmup_steps)
    found += _inits(family, own)
    return tuple(found)


def paper_decisions(paper: Paper) -> tuple[Decision, ...]:
    """The same from printed numbers; the paper prints what neither training nor init costs."""
    found: list[Decision] = []
    for regime in REGIMES:
        found += _with_advice(_paper_lengths(paper, regime))
        seconds = paper.stages[regime]["ar"].generation
        for init in ("ultrachat", "dapo"):
            cells = [paper.online[regime][init, how] for how in ("offline", "online")]
            saved = seconds / cells[0].speedup - seconds / cells[1].speedup
            found.append(_paper_online(TITLES[regime], init, saved))
        found.append(_paper_init(paper, regime))
    return tuple(found)


def _is_of(check: AmdahlCheck, family: Family) -> bool:
    return check.source == "ours" and check.title == family.title


def _kinds(family: Family, checks: Mapping[str, AmdahlCheck]) -> dict[ArmKey, Measured]:
    """Arms with a fixed draft length and a known c(k), by kind of draft (everything but k)."""
    kinds: dict[ArmKey, dict[int, tuple[Arm, AmdahlCheck]]] = {}
    for arm in family.arms:
        check, k = checks.get(arm.label), arm.key.k or ""
        if check is None or check.cost is None or not k.isdecimal() or int(k) == 0:
            continue
        kinds.setdefault(replace(arm.key, k=None), {})[int(k)] = arm, check
    return dict(kinds)


def _lengths(title: str, measured: Measured) -> list[Decision]:
    rates = max((arm.position_rates for arm, _ in measured.values()), key=len)
    arm, check = next(iter(measured.values()))
    found = []
    for k in range(1, max(measured) + 1):
        case = replace(arm.key, k=str(k)).label
        if k in measured:
            found.append(_measured(title, case, measured[k][1]))
        elif k <= len(rates):
            alpha, cost = 1.0 + sum(rates[:k]), _between(measured, k)
            found.append(_computed(title, case, "estimated", alpha, cost, check.share.value))
    return found


def _measured(title: str, case: str, check: AmdahlCheck) -> Decision:
    return Decision(
        title=title,
        question=WHICH_K,
        case=case,
        basis="measured",
        acceptance=check.acceptance,
        cost=check.cost,
        generation=check.generation,
        step=check.predicted,
    )


def _between(measured: Measured, k: int) -> float:
    """c(k) on a straight line between measured lengths, where c(0) = 1."""
    known = {0: 1.0} | {at: _known(measured[at][1].cost).value for at in sorted(measured)}
    return float(np.interp(k, list(known), list(known.values())))


def _computed(
    title: str, case: str, basis: Basis, acceptance: float, cost: float, share: float
) -> Decision:
    generation = acceptance / cost
    return Decision(
        title=title,
        question=WHICH_K,
        case=case,
        basis=basis,
        acceptance=Interval(acceptance),
        cost=Interval(cost),
        generation=Interval(generation),
        step=Interval(step_speedup(share, generation)),
    )


def _paper_lengths(paper: Paper, regime: str) -> list[Decision]:
    """From Table 4 and the generation shares of Table 1."""
    column = paper.stages[regime]["ar"]
    share = column.generation / column.overall
    found = []
    for k, cell in paper.lengths[regime].items():
        assert cell.acceptance is not None, "Table 4 prints acceptance"
        case = ArmKey("eagle3", str(k), "dapo", "offline").label
        cost = verification_cost(cell.acceptance, cell.speedup)
        found.append(_computed(TITLES[regime], case, "paper", cell.acceptance, cost, share))
    return found


def _with_advice(lengths: Sequence[Decision]) -> list[Decision]:
    """The rows of one kind of draft with their words, and below them where the best breaks even."""
    best = max(lengths, key=lambda row: _known(row.step).value)
    told = [replace(row, text=_best(row) if row is best else _word(row)) for row in lengths]
    needs, has = _known(best.cost), _known(best.acceptance)
    verdict = "enough" if has.value > needs.value else "too little"
    text = (
        f"generation gains above an acceptance length of {needs.value:.2f}, what a "
        f"draft-and-verify step costs; it has {has.value:.2f}: {verdict}"
    )
    asked = replace(best, question=BREAK_EVEN, text=text, generation=None, step=None)
    return [*told, asked]


def _best(row: Decision) -> str:
    step, generation = _known(row.step).value, _known(row.generation).value
    if step < 1.0:
        return f"do not draft: the best length gives {step:.2f}x"
    advised = "use it" if step >= CLEAR_GAIN else "the best, but hardly worth it"
    return f"{advised}: steps {step:.2f}x as fast, generation {generation:.2f}x"


def _word(row: Decision) -> str:
    step, needs, has = (_known(figure).value for figure in (row.step, row.cost, row.acceptance))
    if step >= 1.0:
        return "pays, but less than the best" if step >= CLEAR_GAIN else "hardly pays"
    return f"costs time: needs an acceptance length above {needs:.2f}, has {has:.2f}"


def _online(family: Family, warmup_steps: int) -> Iterator[Decision]:
    for arm in family.arms:
        offline = family.arm(replace(arm.key, adaptation="offline"))
        if arm.key.adaptation != "online" or offline is None:
            continue
        pair, figures = match(offline, arm, warmup_steps)
        if pair.refused:
            continue
        net = figures["online_net"]
        text = (
            f"{_pays(net)}: it saves {figures['saved.generation'].value:.2f} s of generation a "
            f"step and costs {figures['draft_cost'].value:.2f} s of draft training"
        )
        yield Decision(
            title=family.title,
            question=ONLINE,
            case=arm.label,
            basis="measured",
            text=text,
            acceptance=arm.acceptance,
            saved_s=net,
        )


def _pays(net: Interval) -> str:
    if net.low is None or net.high is None:
        return f"{net.value:+.2f} s a step, too few steps to tell"
    if net.low > 0:
        return "it pays"
    return "it does not pay" if net.high < 0 else "cannot be told"


def _inits(family: Family, checks: Mapping[str, AmdahlCheck]) -> Iterator[Decision]:
    for arm in family.arms:
        check, cost_s = checks.get(arm.label), arm.init_s
        if check is None or cost_s is None:
            continue
        saved = check.step_saved_s
        gains = saved.value > 0
        yield Decision(
            title=family.title,
            question=INIT,
            case=arm.label,
            basis="measured",
            text=f"the init cost {cost_s:.0f} s{_certainty(saved) if gains else NEVER}",
            acceptance=arm.acceptance,
            step=check.step,
            saved_s=saved,
            paid_steps=_paid(cost_s, saved) if gains else None,
        )


def _paid(cost_s: float, saved: Interval) -> Interval:
    """Steps that save `cost_s`; the interval is that of the saved seconds, where all gain."""
    steps = float(np.ceil(cost_s / saved.value))
    if saved.low is None or saved.high is None or saved.low <= 0:
        return Interval(steps, steps=saved.steps)
    low, high = (float(np.ceil(cost_s / seconds)) for seconds in (saved.high, saved.low))
    return Interval(steps, low, high, saved.steps)


def _certainty(saved: Interval) -> str:
    if saved.low is None:
        return " (too few steps for an interval)"
    return "" if saved.low > 0 else "; that a step is faster at all is not certain"


def _paper_online(title: str, init: str, saved: float) -> Decision:
    text = f"it does not pay: generation takes {-saved:.1f} s a step more"
    if saved > 0:
        text = f"it pays if training the draft costs less than {saved:.1f} s a step, what it saves"
    return Decision(
        title=title,
        question=ONLINE,
        case=ArmKey("eagle3", "3", init, "online").label,
        basis="paper",
        text=text,
        saved_s=Interval(saved),
    )


def _paper_init(paper: Paper, regime: str) -> Decision:
    ar, spec = paper.stages[regime]["ar"].overall, paper.stages[regime]["spec"].overall
    return Decision(
        title=TITLES[regime],
        question=INIT,
        case=ArmKey("eagle3", "3", "dapo", "offline").label,
        basis="paper",
        text=(
            f"one that costs an hour after {np.ceil(HOUR_S / (ar - spec)):.0f} steps; the paper "
            "does not print what it costs"
        ),
        step=Interval(ar / spec),
        saved_s=Interval(ar - spec),
    )


def _known(figure: Interval | None) -> Interval:
    assert figure is not None, "lengths have all their figures"
    return figure
