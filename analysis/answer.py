"""The question on top of the report, answered in plain words from the records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.figures.words import within
from analysis.paper import TITLES
from analysis.records import AmdahlCheck, Family, Interval, Match, Report

Tone = Literal["yes", "no", "open"]


@dataclass(frozen=True)
class Answer:
    """One question; `ours` is from runs, one sentence a family, `paper` from printed numbers."""

    question: str
    tone: Tone
    ours: tuple[str, ...]
    paper: tuple[str, ...] = ()


def answers(report: Report) -> tuple[Answer, ...]:
    """Does it help and by how much, which drafter, what bounds it. Without a matched pair `ours`
    says so and the tone is "open"."""
    families = [(family, _fair(family)) for family in report.families]
    families = [(family, fair) for family, fair in families if fair]
    best = [(family, _fastest(fair)) for family, fair in families]
    printed = [check for check in report.checks if check.source == "paper"]
    steps = [match.step for _, match in best if match.step is not None]
    return (
        Answer(
            "Does speculative decoding make RL steps faster, and by how much?",
            _tone(steps),
            tuple(_gain(family, match) for family, match in best) or _nothing(report),
            tuple(_printed_gain(check) for check in _one_each(printed)),
        ),
        Answer(
            "Which drafter?",
            "open" if not families else _tone(steps),
            tuple(_ranking(family, fair) for family, fair in families) or _nothing(report),
            _printed_ranking(report),
        ),
        Answer(
            "What bounds the gain?",
            "open",
            tuple(_bound(check) for check in _of(report, best)) or _nothing(report),
            tuple(_bound(check) for check in _one_each(printed)),
        ),
    )


def verdict(step: Interval) -> str:
    """What a step speedup and its interval allow to say."""
    if step.low is None or step.high is None:
        return "No interval, so this cannot be told from chance"
    if step.low > 1:
        return "Yes"
    return "No, it is slower" if step.high < 1 else "Not told apart from no gain"


def _fair(family: Family) -> list[Match]:
    return [match for match in family.matches if not match.refused]


def _fastest(matches: Sequence[Match]) -> Match:
    return max(matches, key=lambda match: match.step.value if match.step else 0.0)


def _tone(steps: Sequence[Interval]) -> Tone:
    if steps and all(step.low is not None and step.low > 1 for step in steps):
        return "yes"
    if steps and all(step.high is not None and step.high < 1 for step in steps):
        return "no"
    return "open"


def _nothing(report: Report) -> tuple[str, ...]:
    if not report.runs:
        return ("No runs yet: what follows is the paper's.",)
    return ("No matched pair of arms among the runs: see what is missing and what was refused.",)


def _gain(family: Family, match: Match) -> str:
    assert match.step is not None, "refused matches are left out before"
    text = f"{family.title}: {verdict(match.step)}. With {match.arm.label} a step is "
    text += f"{within(match.step)} as fast as the autoregressive one"
    if match.generation is not None:
        text += f", generation per token {within(match.generation)}"
    return f"{text} ({match.steps} matched steps, {_seeds(match)})."


def _seeds(match: Match) -> str:
    count = len(match.seeds)
    return "1 seed" if count == 1 else f"{count} seeds"


def _ranking(family: Family, matches: Sequence[Match]) -> str:
    ranked = sorted(matches, key=lambda m: -(m.generation.value if m.generation else 0.0))
    names = [
        f"{match.arm.label} {within(match.generation)}"
        for match in ranked
        if match.generation is not None
    ]
    return f"{family.title}, generation speedup, fastest first: {', '.join(names)}."


def _of(report: Report, best: Sequence[tuple[Family, Match]]) -> list[AmdahlCheck]:
    wanted = {(family.title, match.arm.label) for family, match in best}
    ours = [check for check in report.checks if check.source == "ours"]
    return [check for check in ours if (check.title, check.label) in wanted]


def _bound(check: AmdahlCheck) -> str:
    share = check.share
    text = f"{check.title}: generation is {within(share, scale=100, digits=0, unit=' %')} of the "
    text += "autoregressive step"
    if share.value < 1:
        text += f", so no drafter can give more than {1 / (1 - share.value):.2f}×"
    if check.bound is not None and check.acceptance is not None:
        text += f"; at an acceptance length of {within(check.acceptance, unit='')} at most "
        text += within(check.bound)
        if round(check.limit.value, 2) < round(check.bound.value, 2):
            text += f", and {within(check.limit)} with what its engine steps yield"
    text += f". {'Printed' if check.source == 'paper' else 'Measured'}: {within(check.step)}"
    if check.cost is not None:
        text += ", since one draft-and-verify step costs as much as "
        text += f"{within(check.cost, unit='')} autoregressive ones"
    return f"{text}."


def _one_each(checks: Sequence[AmdahlCheck]) -> list[AmdahlCheck]:
    best: dict[str, AmdahlCheck] = {}
    for check in checks:
        if check.title not in best or check.step.value > best[check.title].step.value:
            best[check.title] = check
    return list(best.values())


def _printed_gain(check: AmdahlCheck) -> str:
    return (
        f"{check.title}: {check.step.value:.2f}× a step and {check.generation.value:.2f}× in "
        f"generation with {check.label}."
    )


def _printed_ranking(report: Report) -> tuple[str, ...]:
    names = {"eagle3": "EAGLE-3", "ngram": "n-gram"}
    rows = []
    for regime, drafters in report.paper.drafters.items():
        told = [f"{names[key]} {drafters[key].speedup:.1f}×" for key in names if key in drafters]
        rows.append(f"{TITLES[regime]}: {', '.join(told)}.")
    return tuple(rows)
