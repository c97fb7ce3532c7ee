"""Figure 2: generation latency and validation accuracy over RL steps, for matched arms."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.picture import Absent, Picture
from analysis.figures.smooth import smoothing_note, step_line
from analysis.figures.style import (
    from_zero,
    horizontal_grid,
    house_style,
    number_of,
    start,
    step_axis,
    style_of,
)
from analysis.figures.words import short
from analysis.records import Arm, Family

LATENCY = "time/generation_s"
ACCURACY = "eval/accuracy"
STDERR = "eval/stderr"


def training_curves(
    family: Family, arms: Sequence[Arm], missing: Sequence[Absent], order: Sequence[str] = ()
) -> Picture:
    """Latency above accuracy over steps, a line an arm, the mean over its seeds.

    `arms` are drawn in their order, the autoregressive one first. Arms without a single step are
    left out; with none left the picture has no figure.
    """
    latencies = [(arm, _over_seeds(arm, LATENCY)) for arm in arms]
    latencies = [(arm, curve) for arm, curve in latencies if not curve.empty]
    accuracies = [(arm, _accuracy(arm)) for arm, _ in latencies]
    name = f"figure2_{family.regime}"
    title = f"Generation latency and validation accuracy: {family.title}"
    if not latencies:
        return Picture(name, title, "", title, None, tuple(missing))
    rows = 1 + any(not curve.empty for _, curve in accuracies)
    with house_style():
        figure = start(0.6 + 1.45 * rows + 0.14 * len(latencies))
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for number, (arm, curve) in enumerate(latencies):
            place = number_of(arm.label, order, number)
            step_line(axes[0], curve, place, short(arm.label))
        if rows > 1:
            for number, (arm, curve) in enumerate(accuracies):
                _accuracy_line(axes[1], curve, number_of(arm.label, order, number))
            axes[1].set_ylabel("validation accuracy (%)")
            horizontal_grid(axes[1])
        axes[0].set(ylabel="generation (s / step)")
        from_zero(axes[0], [float(curve.max()) for _, curve in latencies])
        horizontal_grid(axes[0])
        step_axis(axes[-1])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left")
    return Picture(
        name, title, _caption(rows, latencies), _alt(title, latencies, accuracies), figure,
        tuple(missing),
    )  # fmt: skip


def _over_seeds(arm: Arm, metric: str) -> pd.Series:
    """Mean over the runs of an arm at each step that all of them have."""
    columns = [run.steps[metric] for run in arm.runs if metric in run.steps]
    if not columns:
        return pd.Series(dtype=float)
    return pd.concat(columns, axis=1, join="inner").mean(axis=1, skipna=False).dropna()


def _accuracy(arm: Arm) -> pd.DataFrame:
    """Accuracy and its standard error over the arm's seeds, in percent; index: policy updates."""
    runs = [run.evaluations for run in arm.runs if ACCURACY in run.evaluations]
    if not runs:
        return pd.DataFrame(columns=["mean", "error"])
    mean = pd.concat([run[ACCURACY] for run in runs], axis=1, join="inner").mean(axis=1)
    errors = [run[STDERR] if STDERR in run else run[ACCURACY] * np.nan for run in runs]
    squares = pd.concat(errors, axis=1, join="inner") ** 2
    error = np.sqrt(squares.sum(axis=1, skipna=False)) / len(runs)
    return pd.DataFrame({"mean": 100 * mean, "error": 100 * error}).dropna(subset=["mean"])


def _accuracy_line(axes: Axes, curve: pd.DataFrame, number: int) -> None:
    if curve.empty:
        return
    look = style_of(number)
    low, high = curve["mean"] - curve["error"], curve["mean"] + curve["error"]
    axes.fill_between(curve.index, low, high, color=look["color"], alpha=0.18, linewidth=0)
    axes.plot(curve.index, curve["mean"], **look)


def _caption(rows: int, latencies: Sequence[tuple[Arm, pd.Series]]) -> str:
    smoothing = smoothing_note(curve for _, curve in latencies)
    accuracy = " Bands: one standard error of the validation set." if rows > 1 else ""
    seeds = max(len(arm.runs) for arm, _ in latencies)
    pooled = f" Lines are means over up to {seeds} seeds." if seeds > 1 else ""
    return f"Seconds of generation per RL step.{smoothing}{accuracy}{pooled}"


def _alt(
    title: str,
    latencies: Sequence[tuple[Arm, pd.Series]],
    accuracies: Sequence[tuple[Arm, pd.DataFrame]],
) -> str:
    words = [
        f"{arm.label}: {curve.mean():.3g} seconds a step on average" for arm, curve in latencies
    ]
    ends = [
        f"{arm.label}: accuracy from {curve['mean'].iloc[0]:.1f} to {curve['mean'].iloc[-1]:.1f} %"
        for arm, curve in accuracies
        if not curve.empty
    ]
    return f"{title}. " + "; ".join(words + ends) + "."
