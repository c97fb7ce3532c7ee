"""The Amdahl check: what bounds each matched pair, and whether the measurement respects it.

Which bound holds, by arm: 1 / (R / x + 1 - R), where x is what a mean engine step yields. Tokens
per engine step count every step, also those in which nothing was drafted; the acceptance length
alpha only those that verified a draft, so that an n-gram drafter's alpha promises more than its
steps can give. Hence the lower of the two; alpha where engine steps were not counted; 1x for an arm
of which neither is known, since what never drafts cannot gain. Asynchronous arms are bound by
hiding all exposed generation. x is a mean over rollouts: where the longest ones, which end a step,
accept more than the others, generation may truly beat it; acceptance is then the named suspect.
"""

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
        limit=figures["limit"],
        predicted=figures["predicted"],
        cost=figures.get("cost"),
        saved_s={part: figures[f"saved.{part}"] for part in SAVED},
        step_saved_s=figures["saved"],
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
        limit=bound,
        predicted=Interval(step_speedup(share, generation)),
        cost=Interval(verification_cost(acceptance, generation)),
        saved_s={part: Interval(saved[part]) for part in SAVED},
        step_saved_s=Interval(ar.overall - spec.overall),
        baseline_s=_seconds(ar),
        arm_s=_seconds(spec),
    )


def _violation(title: str, match: Match, figures: Mapping[str, Interval]) -> str:
    """One line for a step speedup above its bound by more than the interval; "" otherwise."""
    excess = figures["excess"]
    if excess.low is None or excess.low <= 1.0:
        return ""
    step, limit = figures["step"].value, figures["limit"].value
    return (
        f"{title}, {match.arm.label}: measured step speedup {step:.3f}x is above the Amdahl bound "
        f"{limit:.3f}x of {_basis(figures)} (ratio {excess.value:.3f}, at least {excess.low:.3f}); "
        f"{_suspect(figures)}"
    )


def _basis(figures: Mapping[str, Interval]) -> str:
    """What the bound that holds is made of."""
    if "most" not in figures:
        return "hiding all exposed generation"
    alpha, per_step = figures.get("acceptance"), figures.get("tokens_per_step")
    if per_step is not None and (alpha is None or per_step.value < alpha.value):
        return f"{per_step.value:.2f} tokens an engine step"
    return "an arm that drafted nothing" if alpha is None else f"alpha = {alpha.value:.2f}"


def _suspect(figures: Mapping[str, Interval]) -> str:
    generation, most = figures["generation"].value, figures.get("most")
    outside = {part: figures[f"saved.{part}"].value for part in SAVED if part != "generation"}
    part = max(outside, key=lambda name: outside[name])
    elsewhere = outside[part] >= figures["saved"].value / 2
    if most is not None and generation > most.value and not elsewhere:
        return _in_generation(generation, most.value, drafted="acceptance" in figures)
    if part == "tokens":
        return (
            "suspect: tokens generated, which fell by more than speculation explains "
            f"({outside[part]:.2f} s a step)"
        )
    return (
        f"suspect: {part} time, which fell by {outside[part]:.2f} s a step although speculation "
        "does not touch it"
    )


def _in_generation(generation: float, most: float, drafted: bool) -> str:
    if not drafted:
        return (
            f"suspect: generation time, {generation:.2f} times as fast per token although nothing "
            "was drafted"
        )
    return (
        f"suspect: acceptance length or generation time, since {most:.2f} / {generation:.2f} = "
        f"{most / generation:.2f} says that a step that verifies drafts costs less than one token"
    )


def _rest(column: StageSeconds) -> float:
    return column.overall - sum(column.stages.values())


def _seconds(column: StageSeconds) -> dict[str, float]:
    return {**column.stages, "overhead": _rest(column), "draft": 0.0, "step": column.overall}
