"""The Amdahl check: what bounds each matched pair, and whether the measurement respects it."""

from collections.abc import Mapping

from analysis.arms import ARM, BASELINE, SAVED
from analysis.columns import PARTS
from analysis.paper import REGIMES, TITLES, Paper, StageSeconds
from analysis.records import AmdahlCheck, Interval, Match
from specrl.algo.amdahl import step_speedup, verification_cost
from specrl.algo.comparison import STAGES

DRAFTERS = {"eagle3": "eagle3 k=3 dapo offline", "ngram": "ngram k=3"}


def check_match(
    title: str, regime: str, match: Match, figures: Mapping[str, Interval]
) -> AmdahlCheck:
    """The check of a pair that is not refused; `figures` are those of `arms.match`."""
    return AmdahlCheck(
        title=title,
        regime=regime,
        label=match.arm.label,
        source="ours",
        share=figures["share"],
        acceptance=figures.get("acceptance"),
        generation=figures["generation"],
        step=figures["step"],
        bound=figures.get("bound"),
        engine_bound=figures.get("engine_bound"),
        predicted=figures["predicted"],
        cost=figures.get("cost"),
        saved_s={part: figures[f"saved.{part}"] for part in SAVED},
        baseline_s={part: figures[f"{BASELINE}{part}"].value for part in PARTS},
        arm_s={part: figures[f"{ARM}{part}"].value for part in PARTS},
        violation=_violation(title, match, figures),
    )


def paper_checks(paper: Paper) -> tuple[AmdahlCheck, ...]:
    """The same from the paper's printed numbers: EAGLE-3 of Table 1, both regimes."""
    return tuple(_paper_check(paper, regime) for regime in REGIMES)


def _paper_check(paper: Paper, regime: str) -> AmdahlCheck:
    ar, spec = paper.stages[regime]["ar"], paper.stages[regime]["spec"]
    acceptance = paper.drafters[regime]["eagle3"].acceptance
    assert acceptance is not None, "the paper prints EAGLE-3's acceptance"
    share, generation = ar.generation / ar.overall, ar.generation / spec.generation
    bound = Interval(step_speedup(share, acceptance))
    saved = {stage: ar.stages[stage] - spec.stages[stage] for stage in STAGES}
    saved |= {"overhead": _rest(ar) - _rest(spec), "tokens": 0.0}
    return AmdahlCheck(
        title=TITLES[regime],
        regime=regime,
        label=DRAFTERS["eagle3"],
        source="paper",
        share=Interval(share),
        acceptance=Interval(acceptance),
        generation=Interval(generation),
        step=Interval(ar.overall / spec.overall),
        bound=bound,
        engine_bound=bound,
        predicted=Interval(step_speedup(share, generation)),
        cost=Interval(verification_cost(acceptance, generation)),
        saved_s={part: Interval(saved[part]) for part in SAVED},
        baseline_s=_seconds(ar),
        arm_s=_seconds(spec),
    )


def _violation(title: str, match: Match, figures: Mapping[str, Interval]) -> str:
    """One line for a step speedup above its bound by more than the interval; "" otherwise."""
    excess = figures.get("excess")
    if excess is None or excess.low is None or excess.low <= 1.0:
        return ""
    step, bound = figures["step"].value, figures["bound"].value
    return (
        f"{title}, {match.arm.label}: measured step speedup {step:.3f}x is above the Amdahl bound "
        f"{bound:.3f}x (ratio {excess.value:.3f}, at least {excess.low:.3f}); {_suspect(figures)}"
    )


def _suspect(figures: Mapping[str, Interval]) -> str:
    generation, cost = figures["generation"].value, figures.get("cost", Interval(1.0)).value
    outside = {part: figures[f"saved.{part}"].value for part in SAVED if part != "generation"}
    part = max(outside, key=lambda name: outside[name])
    elsewhere = figures[f"{BASELINE}step"].value - figures[f"{ARM}step"].value
    if cost < 1.0 and outside[part] < elsewhere / 2:
        alpha = figures["acceptance"].value
        return (
            f"suspect: acceptance length or generation time, since c(k) = {alpha:.2f} / "
            f"{generation:.2f} = {cost:.2f} says that verifying k drafts costs less than one token"
        )
    if part == "tokens":
        return (
            "suspect: tokens generated, which fell by more than speculation explains "
            f"({outside[part]:.2f} s a step)"
        )
    return (
        f"suspect: {part} time, which fell by {outside[part]:.2f} s a step although speculation "
        "does not touch it"
    )


def _rest(column: StageSeconds) -> float:
    return column.overall - sum(column.stages.values())


def _seconds(column: StageSeconds) -> dict[str, float]:
    return {**column.stages, "overhead": _rest(column), "draft": 0.0, "step": column.overall}
