"""A curve over RL steps: thin as measured, thick smoothed."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.style import style_of

SMOOTHED_SHARE = 40
"""A smoothed line averages this part of the run around each step."""


def step_line(axes: Axes, curve: pd.Series, number: int, label: str) -> None:
    """`curve` (index: RL steps) as series `number` of the figure; short ones have markers."""
    look = style_of(number)
    window = _window(curve)
    if window > 1:
        axes.plot(curve.index, curve, color=look["color"], linewidth=0.5, alpha=0.3)
    smooth = curve.rolling(window, center=True, min_periods=1).mean()
    marks = {"marker": look["marker"]} if len(curve) <= SMOOTHED_SHARE else {}
    axes.plot(
        smooth.index, smooth, color=look["color"], linestyle=look["linestyle"], label=label, **marks
    )


def smoothing_note(curves: Iterable[pd.Series]) -> str:
    """What a caption says of the thin and the thick lines, "" where nothing was smoothed."""
    window = max(map(_window, curves))
    return f" Thin: each step; thick: mean over {window} steps." if window > 1 else ""


def _window(curve: pd.Series) -> int:
    return max(1, len(curve) // SMOOTHED_SHARE)
