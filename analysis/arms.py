"""Arms and matched pairs in figures: means over counted steps, speedups, intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.columns import PARTS, counted
from analysis.matching import cautions, differences, seed_of
from analysis.records import Arm, ArmKey, Interval, Match, Run
from analysis.resample import Floats, Means, intervals
from specrl.algo.amdahl import whole_speedup
from specrl.algo.comparison import STAGES

BASELINE, ARM = "ar.", "arm."
OUTSIDE = (*(stage for stage in STAGES if stage != "generation"), "overhead")
SAVED = ("generation", "tokens", *OUTSIDE)
"""What a change of the step time is split into; they add up to it."""
LINEAR = {*(f"saved.{part}" for part in SAVED), "saved", "draft_cost", "online_net"}
PLAIN = {f"{side}{part}" for side in (BASELINE, ARM) for part in PARTS}


def arm_of(
    key: ArmKey, runs: Sequence[Run], warmup_steps: int, rates: tuple[float, ...] = ()
) -> Arm:
    """Means of the counted steps of one run per seed; `rates` are those of `Arm`."""
    found = intervals([counted(run, warmup_steps) for run in runs], _arm_figures)
    zero = Interval(0.0, steps=found["part.step"].steps)
    init_s = [run.steps["init/seconds"].dropna() for run in runs]
    known = [float(seconds.iloc[0]) for seconds in init_s if len(seconds)]
    return Arm(
        key=key,
        runs=tuple(runs),
        steps=zero.steps,
        stage_s={part: found.get(f"part.{part}", zero) for part in PARTS},
        tokens=found["tokens"],
        generation_share=found["share"],
        tokens_per_s=found["tokens_per_s"],
        acceptance=found.get("acceptance"),
        tokens_per_step=found.get("tokens_per_step"),
        position_rates=rates,
        init_s=max(known) if known else None,
        exposed_s=found.get("exposed") if key.max_lag else None,
    )


def match(baseline: Arm, arm: Arm, warmup_steps: int) -> tuple[Match, dict[str, Interval]]:
    """The pair, and every figure of it (see `pair_figures`); {} where it is refused."""
    differing = differences(baseline.runs[0], arm.runs[0])
    notes = cautions(baseline.runs[0], arm.runs[0])
    if differing:
        return Match(baseline, arm, differing, tuple(notes)), {}
    pairs, unpaired = seed_pairs(baseline, arm)
    if unpaired:
        notes.append(f"seed {', '.join(unpaired)}: in one of the two only, left out")
    tables = [_joined(*pair, warmup_steps) for pair in pairs]
    tables = [table for table in tables if len(table)]
    if not tables:
        return Match(baseline, arm, cautions=(*notes, "no step and seed that both have")), {}
    left_out = _left_out(baseline, arm, tables)
    if left_out:
        notes.append(left_out)
    figures = lagging_figures if arm.key.max_lag else pair_figures
    found = intervals(tables, figures, LINEAR, PLAIN)
    matched = Match(
        baseline=baseline,
        arm=arm,
        cautions=tuple(notes),
        seeds=tuple(seed_of(run) for run, _ in pairs),
        steps=sum(len(table) for table in tables),
        generation=found["generation"],
        generation_latency=found["generation_latency"],
        step=found["step"],
    )
    return matched, found


def seed_pairs(baseline: Arm, arm: Arm) -> tuple[list[tuple[Run, Run]], list[str]]:
    """Runs of the two arms with the same seed, and the seeds that only one of them has."""
    left = {seed_of(run): run for run in baseline.runs}
    right = {seed_of(run): run for run in arm.runs}
    shared = sorted(left.keys() & right.keys())
    return [(left[seed], right[seed]) for seed in shared], sorted(left.keys() ^ right.keys())


def pair_figures(means: Means) -> Mapping[str, Floats]:
    """Every figure of a pair, from means whose names begin with `BASELINE` or `ARM`.

    "generation" is per token, "generation_latency" per step. "bound" and "cost" take the acceptance
    length, "engine_bound" tokens per engine step, "predicted" the generation speedup; NaN where
    nothing was drafted. "most" is what generation can gain at most, the lower of acceptance length
    and tokens per engine step, 1 where neither is known; "limit" is the step's bound from it and
    "excess" the step speedup over "limit". "saved" (all of a step), "saved.*", "draft_cost" and
    "online_net" (what online adaptation gains over the same arm offline) are seconds per step.
    """
    ar = {k.removeprefix(BASELINE): v for k, v in means.items() if k.startswith(BASELINE)}
    arm = {k.removeprefix(ARM): v for k, v in means.items() if k.startswith(ARM)}
    share = np.minimum(ar["generation"] / ar["step"], 1.0)
    seconds, base_seconds = (m["generation"] / m["tokens"] for m in (arm, ar))
    generation, step = base_seconds / seconds, ar["step"] / arm["step"]
    acceptance = _ratio(arm["tokens_drafted"], arm["drafts"])
    per_step = _ratio(arm["tokens_decoded"], arm["engine_steps"])
    most = np.fmax(np.fmin(acceptance, per_step), 1.0)  # a step yields its own token at least
    limit = _bound(share, most)
    saved = {part: ar[part] - arm[part] for part in OUTSIDE}
    saved["generation"] = ar["tokens"] * (base_seconds - seconds)
    saved["tokens"] = (ar["tokens"] - arm["tokens"]) * seconds
    return {
        "share": share,
        "generation": generation,
        "generation_latency": ar["generation"] / arm["generation"],
        "step": step,
        "acceptance": acceptance,
        "tokens_per_step": per_step,
        "bound": _bound(share, acceptance),
        "engine_bound": _bound(share, per_step),
        "most": most,
        "limit": limit,
        "predicted": _bound(share, generation),
        "cost": _ratio(acceptance, generation),
        "excess": step / limit,
        "saved": ar["step"] - arm["step"],
        **{f"saved.{part}": value for part, value in saved.items()},
        **{f"{BASELINE}{part}": ar[part] for part in PARTS},
        **{f"{ARM}{part}": arm[part] for part in PARTS},
        "draft_cost": arm["draft"] - ar["draft"],
        "online_net": saved["generation"] - (arm["draft"] - ar["draft"]),
        "exposed_speedup": _ratio(ar["exposed"], arm["exposed"]),
    }


def lagging_figures(means: Means) -> Mapping[str, Floats]:
    """As `pair_figures` for asynchronous arms, where only exposed generation is on the path.

    "share" is exposed generation's, and hiding all of it bounds the step speedup, whatever was
    drafted; "predicted" is what the change of it explains. The rest of the change is overhead's.
    """
    found = dict(pair_figures(means))
    step, exposed = means[f"{BASELINE}step"], means[f"{BASELINE}exposed"]
    saved = exposed - means[f"{ARM}exposed"]
    share = np.minimum(exposed / step, 1.0)
    bound = _bound(share, np.full_like(share, np.inf))
    found |= {"share": share, "bound": bound, "engine_bound": bound, "limit": bound}
    found |= {"cost": np.nan * share, "most": np.inf * np.ones_like(share)}
    found |= {"predicted": step / (step - saved), "excess": found["step"] / bound}
    found |= {"saved.generation": saved, "saved.tokens": 0.0 * saved}
    others = sum(found[f"saved.{part}"] for part in SAVED if part != "overhead")
    found["saved.overhead"] = step - means[f"{ARM}step"] - others
    return found


def _arm_figures(means: Means) -> Mapping[str, Floats]:
    return {
        **{f"part.{part}": means[part] for part in PARTS},
        "tokens": means["tokens"],
        "share": means["generation"] / means["step"],
        "tokens_per_s": means["tokens"] / means["generation"],
        "acceptance": _ratio(means["tokens_drafted"], means["drafts"]),
        "tokens_per_step": _ratio(means["tokens_decoded"], means["engine_steps"]),
        "exposed": means["exposed"],
    }


def _bound(share: Floats, faster: Floats) -> Floats:
    """Amdahl's bound; NaN where `faster` is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return whole_speedup(share, faster)


def _ratio(part: Floats, whole: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def _joined(baseline: Run, run: Run, warmup_steps: int) -> pd.DataFrame:
    left = counted(baseline, warmup_steps).add_prefix(BASELINE)
    return left.join(counted(run, warmup_steps).add_prefix(ARM), how="inner")


def _left_out(baseline: Arm, arm: Arm, tables: Sequence[pd.DataFrame]) -> str:
    steps = sum(len(table) for table in tables)
    longest = max(baseline.steps, arm.steps)
    if steps == longest:
        return ""
    return f"compared over the {steps} steps that both have, of {longest}"
