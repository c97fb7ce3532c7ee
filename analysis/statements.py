"""What computing from the paper's printed numbers says, beside what it prints."""

from collections.abc import Iterator, Mapping

from analysis.amdahl import paper_checks
from analysis.paper import REGIMES, TITLES, Paper
from analysis.records import Interval, Statement
from specrl.algo.amdahl import step_speedup, verification_cost

PRINTED_BOUND = 1.86
"""How the bounds are quoted for both regimes (two decimals)."""


HALF_DIGIT = 0.005
"""Acceptance is printed with two decimals."""


def paper_statements(paper: Paper) -> tuple[Statement, ...]:
    """Bounds, predictions, costs, the async gap and what the headline needs, by computation."""
    return (
        *_step_statements(paper),
        *_rounding_statements(paper),
        *_cost_statements(paper),
        *_async_statements(paper),
        *_scale_statements(paper),
    )


def share_needed(end_to_end: float, rollout: float) -> float:
    """Generation share at which a rollout speedup gives that end-to-end speedup."""
    return (1 - 1 / end_to_end) / (1 - 1 / rollout)


def _step_statements(paper: Paper) -> Iterator[Statement]:
    for check in paper_checks(paper):
        assert check.acceptance is not None, "the paper prints acceptance"
        assert check.bound is not None, "the paper prints acceptance"
        bound, share = check.bound.value, check.share.value
        printed = paper.stages[check.regime]["spec"].step_speedup
        low, high = (
            step_speedup(share, check.acceptance.value + half) for half in (-HALF_DIGIT, HALF_DIGIT)
        )
        yield Statement(
            f"bound.{check.regime}",
            f"{check.title}: R = {share:.3f} and alpha = {check.acceptance.value:.2f} bound the "
            f"step speedup at {bound:.3f}x ({low:.3f} to {high:.3f} within the rounding of alpha); "
            f"it is quoted as {PRINTED_BOUND}x.",
            bound,
            PRINTED_BOUND,
        )
        yield Statement(
            f"predicted.{check.regime}",
            f"{check.title}: the measured generation speedup {check.generation.value:.2f}x "
            f"predicts {check.predicted.value:.2f}x; the paper prints {printed:.2f}x. The "
            f"difference is {_outside(check.saved_s)} saved outside generation.",
            check.predicted.value,
            printed,
        )


def _rounding_statements(paper: Paper) -> Iterator[Statement]:
    for regime in REGIMES:
        columns, printed = paper.stages[regime], paper.lengths[regime][3].speedup
        ratio = columns["ar"].generation / columns["spec"].generation
        if round(ratio, 2) != printed:
            yield Statement(
                f"rounding.{regime}",
                f"{TITLES[regime]}: the seconds of Table 1 give a generation speedup of "
                f"{ratio:.3f}x; Tables 3 to 5 print {printed:.2f}x for the same arm.",
                ratio,
                printed,
            )


def _cost_statements(paper: Paper) -> Iterator[Statement]:
    for regime in ("rl_zero", "rl_think"):
        for k, cell in paper.lengths[regime].items():
            assert cell.acceptance is not None, "Table 4 prints acceptance"
            cost = verification_cost(cell.acceptance, cell.speedup)
            yield Statement(
                f"cost.{regime}.{k}",
                f"{TITLES[regime]}: c({k}) = {cell.acceptance:.2f} / {cell.speedup:.2f} = "
                f"{cost:.2f} autoregressive steps.",
                cost,
            )


def _async_statements(paper: Paper) -> Iterator[Statement]:
    ar, spec = paper.async_rl_think["ar"], paper.async_rl_think["spec"]
    exposed, step = ar.exposed_generation - spec.exposed_generation, ar.step - spec.step
    yield Statement(
        "async.unexplained",
        f"Async RL-Think: {exposed:.1f} s of exposed generation and {step:.1f} s of step time "
        f"saved; {step - exposed:.1f} s are not explained by generation.",
        step - exposed,
    )
    hidden = step_speedup(ar.exposed_generation / ar.step, float("inf"))
    yield Statement(
        "async.bound",
        f"Async RL-Think: hiding all {ar.exposed_generation:.1f} s of exposed generation would "
        f"give {hidden:.2f}x; the printed {spec.step_speedup:.2f}x is above that bound.",
        hidden,
        spec.step_speedup,
    )
    explained = ar.step / (ar.step - exposed)
    yield Statement(
        "async.explained",
        f"Async RL-Think: the exposed generation alone gives {explained:.2f}x; the paper prints "
        f"{spec.step_speedup:.2f}x.",
        explained,
        spec.step_speedup,
    )


def _scale_statements(paper: Paper) -> Iterator[Statement]:
    headline = paper.headline
    share = share_needed(headline.end_to_end, headline.rollout)
    yield Statement(
        "headline.share",
        f"The {headline.end_to_end}x headline ({headline.rollout}x rollout, {headline.gpus} GPUs, "
        f"lag {headline.lag}) needs R = {share:.2f}; Figure 3 implies R = "
        f"{paper.generation_share:.2f}, with which it would be "
        f"{step_speedup(paper.generation_share, headline.rollout):.2f}x.",
        share,
    )
    shares = [
        share_needed(cell.end_to_end, cell.rollout)
        for cell in paper.acceptance_cells
        if cell.end_to_end is not None
    ]
    yield Statement(
        "figure3.share",
        f"Figure 3: the {len(shares)} printed end-to-end cells imply R = {min(shares):.4f} to "
        f"{max(shares):.4f}.",
        sum(shares) / len(shares),
        paper.generation_share,
    )
    columns = {regime: paper.stages[regime]["ar"] for regime in REGIMES}
    ratios = {regime: column.generation / column.overall for regime, column in columns.items()}
    yield Statement(
        "table1.share",
        "Table 1: generation is "
        + ", ".join(f"{100 * ratios[regime]:.1f} % ({TITLES[regime]})" for regime in REGIMES)
        + " of an autoregressive step; the text says 65 to 72 %.",
        min(ratios.values()),
        0.65,
    )


def _outside(saved_s: Mapping[str, Interval]) -> str:
    seconds = sum(s.value for part, s in saved_s.items() if part != "generation")
    return f"{seconds:.1f} s"
