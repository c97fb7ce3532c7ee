"""What a measurement advises: draft length, online adaptation, and when a draft init has paid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from analysis.arms import match
from analysis.paper import REGIMES, TITLES, Paper
from analysis.records import Advice, Decision, Family, Interval, Match
from specrl.algo.amdahl import step_speedup, verification_cost

Costs = Mapping[int, float]
CLEAR_GAIN = 1.02
"""A predicted step speedup below this is not worth the trouble."""


def family_decisions(family: Family) -> tuple[Decision, ...]:
    """A row per draft length up to the longest measured one, for every kind of draft measured."""
    found: list[Decision] = []
    for kind, matches in _kinds(family).items():
        found += _kind_decisions(f"{family.title}: {kind}", matches)
    return tuple(found)


def paper_decisions(paper: Paper) -> tuple[Decision, ...]:
    """The same from Table 4 and the generation shares of Table 1."""
    found = []
    for regime in REGIMES:
        column = paper.stages[regime]["ar"]
        share = column.generation / column.overall
        for k, cell in paper.lengths[regime].items():
            assert cell.acceptance is not None, "Table 4 prints acceptance"
            cost = verification_cost(cell.acceptance, cell.speedup)
            found.append(_decision(TITLES[regime], k, cell.acceptance, cost, share, "paper"))
    return tuple(_with_best(found))


def family_advice(family: Family, warmup_steps: int) -> tuple[Advice, ...]:
    """Answers in plain words; a question that no pair of runs speaks to is left out."""
    return (
        *_length_advice(family_decisions(family)),
        *_online_advice(family, warmup_steps),
        *_init_advice(family),
    )


def paper_advice(paper: Paper) -> tuple[Advice, ...]:
    """The same from printed numbers; the paper prints what neither training nor init costs."""
    found = list(_length_advice(paper_decisions(paper)))
    for regime in REGIMES:
        seconds = paper.stages[regime]["ar"].generation
        for init in ("ultrachat", "dapo"):
            cells = [paper.online[regime][init, how] for how in ("offline", "online")]
            saved = seconds / cells[0].speedup - seconds / cells[1].speedup
            found.append(_paper_online(TITLES[regime], init, saved))
        step = paper.stages[regime]["ar"].overall - paper.stages[regime]["spec"].overall
        text = (
            f"EAGLE-3 saves {step:.1f} s a step, so an init that costs an hour has paid after "
            f"{np.ceil(3600 / step):.0f} steps (the paper prints no cost)"
        )
        found.append(Advice(TITLES[regime], "paper", "draft init", text, step, "s/step"))
    return tuple(sorted(found, key=lambda advice: advice.title))


def _kinds(family: Family) -> dict[str, list[Match]]:
    """Matches with a fixed draft length, by kind of draft (everything but k)."""
    kinds: dict[str, list[Match]] = {}
    for pair in family.matches:
        key = pair.arm.key
        if pair.refused or pair.arm.acceptance is None or not (key.k or "").isdigit():
            continue
        kinds.setdefault(replace(key, k="*").label.replace(" k=*", ""), []).append(pair)
    return kinds


def _kind_decisions(title: str, matches: Sequence[Match]) -> list[Decision]:
    measured = {int(pair.arm.key.k or 0): pair for pair in matches}
    lengths = {k: _known(pair.arm.acceptance) for k, pair in measured.items()}
    costs = {
        k: verification_cost(lengths[k], _known(pair.generation)) for k, pair in measured.items()
    }
    rates = max((pair.arm.position_rates for pair in matches), key=len)
    share = matches[0].baseline.generation_share.value
    found = []
    for k in range(1, max(measured) + 1):
        if k in measured:
            found.append(_decision(title, k, lengths[k], costs[k], share, "measured"))
        elif k <= len(rates):
            alpha = 1.0 + sum(rates[:k])
            found.append(_decision(title, k, alpha, _between(costs, k), share, "estimated"))
    return _with_best(found)


def _between(costs: Costs, k: int) -> float:
    """c(k) on a straight line between measured lengths, where c(0) = 1."""
    known = {0: 1.0, **dict(sorted(costs.items()))}
    return float(np.interp(k, list(known), list(known.values())))


def _decision(
    title: str, k: int, acceptance: float, cost: float, share: float, basis: str
) -> Decision:
    generation = acceptance / cost
    step = step_speedup(share, generation)
    return Decision(
        title=title,
        source="paper" if basis == "paper" else "ours",
        k=k,
        basis=basis,
        acceptance=acceptance,
        cost=cost,
        break_even=cost,
        generation=generation,
        step=step,
        text=_word(step, acceptance, cost),
    )


def _word(step: float, acceptance: float, cost: float) -> str:
    if step >= CLEAR_GAIN:
        return "pays"
    if step >= 1.0:
        return "hardly pays"
    return f"costs time: needs acceptance above {cost:.2f}, has {acceptance:.2f}"


def _with_best(decisions: Sequence[Decision]) -> list[Decision]:
    best: dict[str, Decision] = {}
    for decision in decisions:
        if decision.step > best.setdefault(decision.title, decision).step:
            best[decision.title] = decision
    return [
        replace(d, text=f"best: {d.text}") if d is best[d.title] and d.step > 1.0 else d
        for d in decisions
    ]


def _length_advice(decisions: Sequence[Decision]) -> Iterator[Advice]:
    for name in dict.fromkeys(decision.title for decision in decisions):
        best = max((d for d in decisions if d.title == name), key=lambda d: d.step)
        advised = f"use k={best.k}" if best.step >= CLEAR_GAIN else f"hardly worth it: k={best.k}"
        text = (
            f"{advised} ({best.basis}): steps {best.step:.2f}x as fast, generation "
            f"{best.generation:.2f}x; it breaks even at an acceptance length of "
            f"{best.break_even:.2f} and has {best.acceptance:.2f}"
        )
        if best.step < 1.0:
            text = (
                f"do not draft: the best length, k={best.k}, gives {best.step:.2f}x; it needs an "
                f"acceptance length above {best.break_even:.2f} and has {best.acceptance:.2f}"
            )
        yield Advice(name, best.source, "draft length", text, best.step, "x")


def _online_advice(family: Family, warmup_steps: int) -> Iterator[Advice]:
    for arm in family.arms:
        offline = family.arm(replace(arm.key, adaptation="offline"))
        if arm.key.adaptation != "online" or offline is None:
            continue
        pair, figures = match(offline, arm, warmup_steps)
        if pair.refused:
            continue
        net = figures["online_net"]
        text = (
            f"{arm.label}: online adaptation saves {figures['saved.generation'].value:.2f} s of "
            f"generation a step and costs {figures['draft_cost'].value:.2f} s of draft training"
        )
        yield Advice(
            family.title, "ours", "online adaptation", f"{text}: {_pays(net)}", net.value, "s/step"
        )


def _pays(net: Interval) -> str:
    if net.low is None or net.high is None:
        return f"{net.value:+.2f} s a step, too few steps to tell"
    interval = f"{net.value:+.2f} s a step (95 % {net.low:+.2f} to {net.high:+.2f})"
    if net.low > 0:
        return f"it pays, {interval}"
    return f"it does not pay, {interval}" if net.high < 0 else f"cannot be told, {interval}"


def _init_advice(family: Family) -> Iterator[Advice]:
    for pair in family.matches:
        cost = pair.arm.init_s
        if pair.refused or cost is None or pair.step is None:
            continue
        saved = pair.arm.stage_s["step"].value * (pair.step.value - 1.0)
        if saved <= 0:
            text = f"{pair.arm.label}: the init cost {cost:.0f} s and no step is faster for it"
            yield Advice(family.title, "ours", "draft init", f"{text}: it never pays")
            continue
        steps = float(np.ceil(cost / saved))
        text = (
            f"{pair.arm.label}: the init cost {cost:.0f} s and a step saves {saved:.2f} s: it has "
            f"paid after {steps:.0f} steps{_certainty(pair.step)}"
        )
        yield Advice(family.title, "ours", "draft init", text, steps, "steps")


def _certainty(step: Interval) -> str:
    if step.low is None:
        return " (too few steps for an interval)"
    return "" if step.low > 1.0 else " (the step speedup itself is not certain)"


def _paper_online(title: str, init: str, saved: float) -> Advice:
    verb, verdict = ("saves", "pays if it costs less") if saved > 0 else ("costs", "does not pay")
    text = f"with init={init} it {verb} {abs(saved):.1f} s of generation a step: it {verdict}"
    return Advice(title, "paper", "online adaptation", text, saved, "s/step")


def _known(interval: Interval | None) -> float:
    assert interval is not None, "matches without a figure were left out"
    return interval.value
