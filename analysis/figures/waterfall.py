"""Where the seconds of a step go, autoregressive against speculative, and which part saved them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.figures.picture import Picture
from analysis.figures.style import INK, STAGES, house_style, start
from analysis.figures.words import seconds, short, slug
from analysis.records import AmdahlCheck, Interval

PARTS: Mapping[str, tuple[str, str]] = {
    "generation": ("generation, equal tokens", "generation"),
    "tokens": ("fewer tokens", "generation"),
    "logprob": ("log-probs", "logprob"),
    "training": ("training", "training"),
    "prepare": ("prepare", "prepare"),
    "data": ("data", "data"),
    "overhead": ("rest of the step", "other"),
}
"""What a part of `AmdahlCheck.saved_s` is called, and the stage whose colour it has."""

SMALL = 0.005
"""Parts below this share of the autoregressive step are added up into one row."""

LABEL = 28
"""Characters: an arm's name is as wide as the names of the parts."""

STACKED = ("generation", "logprob", "training", "prepare", "data")


@dataclass(frozen=True)
class Bar:
    """A change of `saved` seconds (negative: lost) that begins at `start_s`."""

    label: str
    stage: str
    start_s: float
    saved: Interval


def step_waterfall(check: AmdahlCheck) -> Picture:
    """The autoregressive step on top, what each part saved or cost below, the other step last."""
    before, after = _total(check.baseline_s), _total(check.arm_s)
    bars = _bars(check.saved_s, before)
    name = f"waterfall_{slug(check.title)}_{slug(check.label)}"
    title = f"Where a step's time goes: {check.title}, {check.label}"
    if check.source == "paper":
        title += " (the paper's numbers)"
    with house_style():
        figure = start(0.85 + 0.2 * (len(bars) + 2))
        axes = figure.subplots()
        rows = len(bars) + 1
        _stack(axes, rows, check.baseline_s, before)
        for number, bar in enumerate(bars):
            _change(axes, rows - 1 - number, bar, before)
        _stack(axes, 0, check.arm_s, after)
        labels = ["autoregressive", *(bar.label for bar in bars), short(check.label, LABEL)]
        axes.set_yticks(range(rows, -1, -1), labels)
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel="seconds per RL step", xlim=(0, 1.2 * max(before, after)))
        axes.set_ylim(-0.6, rows + 0.6)
        figure.legend(handles=_key(check), loc="outside lower left", ncols=3, columnspacing=1.0)
    caption = (
        f"Mean step: {seconds(before, before)} s autoregressive, {seconds(after, before)} s with "
        f"{check.label}. Between them, the seconds that each part saved (−) or cost (+, hatched)."
    )
    return Picture(name, title, caption, _alt(title, before, after, bars), figure)


def _total(stage_s: Mapping[str, float]) -> float:
    if "step" in stage_s:
        return stage_s["step"]
    return sum(stage_s.get(stage, 0.0) for stage in (*STACKED, "overhead"))


def _bars(saved: Mapping[str, Interval], before: float) -> list[Bar]:
    """Changes one after the other; each begins where the last one ended."""
    bars, position, small = [], before, 0.0
    known = [part for part in (*PARTS, *saved) if part in saved]
    for part in dict.fromkeys(known):
        label, stage = PARTS.get(part, (part, "other"))
        change = saved[part]
        if part == "tokens" and change.value < 0:
            label = "more tokens"
        if abs(change.value) < SMALL * before and part != "generation":
            small += change.value
            continue
        bars.append(Bar(label, stage, position, change))
        position -= change.value
    if float(seconds(small, before)) != 0.0:
        bars.append(Bar("all else", "other", position, Interval(small)))
    return bars


def _stack(axes: Axes, row: int, stage_s: Mapping[str, float], total: float) -> None:
    left = 0.0
    for stage in STACKED:
        width = stage_s.get(stage, 0.0)
        axes.barh(row, width, left=left, height=0.68, color=STAGES[stage], linewidth=0)
        left += width
    rest = max(0.0, total - left)
    axes.barh(row, rest, left=left, height=0.68, color=STAGES["other"], linewidth=0)
    axes.text(total, row, f" {seconds(total, total)} s", va="center", fontsize=7)


def _change(axes: Axes, row: int, bar: Bar, before: float) -> None:
    value = bar.saved.value
    end = bar.start_s - value
    axes.barh(
        row, abs(value), left=min(bar.start_s, end), height=0.5, color=STAGES[bar.stage],
        linewidth=0, edgecolor="#ffffff", hatch="//////" if value < 0 else None,
    )  # fmt: skip
    edge = max(bar.start_s, end)
    if bar.saved.low is not None and bar.saved.high is not None:
        low, high = bar.start_s - bar.saved.high, bar.start_s - bar.saved.low
        axes.hlines(row, low, high, color=INK, linewidth=0.9)
        edge = max(edge, high)
    sign = "−" if value >= 0 else "+"
    axes.text(
        edge + 0.01 * before, row, f"{sign}{seconds(abs(value), before)} s", va="center", fontsize=7
    )


def _key(check: AmdahlCheck) -> list[Patch]:
    total = max(_total(check.baseline_s), _total(check.arm_s))
    shown = [
        stage
        for stage in STACKED
        if max(s.get(stage, 0.0) for s in (check.baseline_s, check.arm_s)) > SMALL * total
    ]
    names = {"logprob": "log-probs"}
    return [Patch(color=STAGES[stage], label=names.get(stage, stage)) for stage in shown]


def _alt(title: str, before: float, after: float, bars: Sequence[Bar]) -> str:
    changes = ", ".join(f"{bar.label} {-bar.saved.value:+.1f}" for bar in bars)
    return f"{title}. From {before:.1f} to {after:.1f} seconds a step: {changes} seconds."
