"""Acceptance over training: does the draft keep up with the policy?"""

from collections.abc import Sequence

import pandas as pd

from analysis.figures.picture import Absent, Picture
from analysis.figures.smooth import smoothing_note, step_line
from analysis.figures.style import (
    from_one,
    horizontal_grid,
    house_style,
    number_of,
    start,
    step_axis,
)
from analysis.figures.words import short
from analysis.records import Arm

ACCEPTANCE = "spec/acceptance_length"
DRAFTS = "spec/num_drafts"


def acceptance_over_training(arms: Sequence[Arm], title: str, order: Sequence[str] = ()) -> Picture:
    """Acceptance length over RL steps, a line an arm, its seeds pooled by their drafts."""
    curves = {arm.label: _pooled(arm) for arm in arms}
    curves = {label: curve for label, curve in curves.items() if not curve.empty}
    heading = f"Acceptance over training: {title}"
    if not curves:
        absent = Absent("acceptance over training", "specrl drafter=eagle3")
        return Picture("acceptance_training", heading, "", heading, None, (absent,))
    with house_style():
        figure = start(2.2 + 0.14 * len(curves))
        axes = figure.subplots()
        for number, (label, curve) in enumerate(curves.items()):
            step_line(axes, curve, number_of(label, order, number), short(label))
        step_axis(axes)
        axes.set_ylabel("acceptance length (tokens)")
        from_one(axes, [float(curve.max()) for curve in curves.values()])
        horizontal_grid(axes)
        figure.legend(loc="outside lower left")
    caption = "Tokens per verification step, the bonus token included."
    caption += smoothing_note(curves.values())
    ends = "; ".join(
        f"{label}: from {curve.iloc[0]:.2f} to {curve.iloc[-1]:.2f}"
        for label, curve in curves.items()
    )
    return Picture("acceptance_training", heading, caption, f"{heading}. {ends}.", figure)


def _pooled(arm: Arm) -> pd.Series:
    """Drafts-weighted mean over the runs at each step."""
    runs = [run.steps for run in arm.runs if {ACCEPTANCE, DRAFTS} <= set(run.steps.columns)]
    if not runs:
        return pd.Series(dtype=float)
    known = [run.dropna(subset=[ACCEPTANCE, DRAFTS]) for run in runs]
    accepted = pd.concat([run[ACCEPTANCE] * run[DRAFTS] for run in known])
    drafts = pd.concat([run[DRAFTS] for run in known])
    return (accepted.groupby(level=0).sum() / drafts.groupby(level=0).sum()).dropna()
