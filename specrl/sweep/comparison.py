"""The table that compares the arms of a sweep, printed when the sweep ends.

Points of one sweep share config and machine but for their overrides, so that arms match where those
do; `analysis.matching` compares runs of any origin, and so whole configs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from specrl.algo.comparison import STAGES, Arm, Speedup, arm_of, figures, speedup_over
from specrl.config.overrides import key_of
from specrl.errors import UserError
from specrl.sweep.points import Point, letter
from specrl.telemetry.console import PipeSafeConsole
from specrl.telemetry.jsonl import read_info, read_run
from specrl.telemetry.mlflow_run import ui_command

BASELINE = "none"
TITLE = "Matched arms: mean per step, the first step left out"
CAPTION = (
    "speedups: over the autoregressive arm with the same settings, of generation\n"
    "per token; Amdahl bound: from tokens per engine step; costs: in autoregressive\n"
    "steps"
)
DRAFT_GROUPS = ("drafter", "init", "adaptation")


@dataclass(frozen=True)
class SweepArm:
    """A run of a sweep; `settings` are the overrides that say nothing of the draft.

    `accuracy` is the last pass@1, None where nothing was evaluated.
    """

    folder: Path
    arm: Arm
    autoregressive: bool
    settings: frozenset[str]
    accuracy: float | None = None


def print_comparison(points: Sequence[Point]) -> None:
    """Prints the table, and how to open MLflow, once two points have steps to compare."""
    arms = arms_in(points)
    if len(arms) < 2:
        return
    console = PipeSafeConsole()
    console.print(Comparison(arms))
    for command in sorted(_ui_commands(points)):
        console.print(f"compare runs: {command}", soft_wrap=True, highlight=False, markup=False)


def arms_in(points: Sequence[Point]) -> list[SweepArm]:
    """The runs with at least one finished step, matched arms together, autoregressive first.

    An arm is named after its drafter, and after the overrides that tell it from the others.
    """
    shared = set.intersection(*(set(point.overrides) for point in points)) if points else set()
    arms = []
    for point in {point.folder: point for point in points}.values():
        try:
            steps = [record.metrics for record in read_run(point.folder).records]
            arm = arm_of(_name(point, shared), steps)
        except (UserError, OSError):
            continue
        settings = frozenset(word for word in point.overrides if not _of_draft(word))
        accuracy = next((s["eval/accuracy"] for s in reversed(steps) if "eval/accuracy" in s), None)
        arms.append(SweepArm(point.folder, arm, point.drafter == BASELINE, settings, accuracy))
    order = list(dict.fromkeys(arm.settings for arm in arms))
    return sorted(arms, key=lambda arm: (order.index(arm.settings), not arm.autoregressive))


def arm_figures(points: Sequence[Point]) -> dict[Path, dict[str, float]]:
    """What each run folder of a sweep is compared by; see `specrl.algo.comparison.figures`.

    Speedups are over the autoregressive run with the same settings.
    """
    arms = arms_in(points)
    found = {a.folder: figures(a.arm, gain) for a, gain in zip(arms, _gains(arms), strict=True)}
    for arm in arms:
        if arm.accuracy is not None:
            found[arm.folder]["accuracy"] = arm.accuracy
    return found


def _ui_commands(points: Sequence[Point]) -> set[str]:
    infos = [read_info(point.folder) for point in points]
    tracking = [info.config.get("tracking", {}) for info in infos if info is not None]
    return {ui_command(settings["uri"]) for settings in tracking if "uri" in settings}


def _name(point: Point, shared: set[str]) -> str:
    own = [word for word in point.overrides if word not in shared]
    if point.drafter == BASELINE:
        own = [word for word in own if not _of_draft(word)]
    return " ".join([point.drafter, *(word for word in own if not word.startswith("drafter="))])


def _of_draft(word: str) -> bool:
    return key_of(word).partition(".")[0] in DRAFT_GROUPS


@dataclass(frozen=True)
class Comparison:
    """What rich prints: stage seconds and acceptance of each arm, a column each.

    Speedups where an arm has its autoregressive one among the others. Names too long for the
    console become letters, and columns that do not fit go into further tables.
    """

    arms: Sequence[SweepArm]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        names = [arm.arm.name for arm in self.arms]
        rows = [*_own_rows([arm.arm for arm in self.arms]), *_matched_rows(self.arms)]
        room = options.max_width - len("│") - _width([max(len(label) for label, _ in rows)])
        widest = max(len(cell) for _, cells in rows for cell in cells)
        at_once = len(names)
        yield Text(TITLE)
        if _width([max(len(name), widest) for name in names]) > room:
            lettered = {letter(number): name for number, name in enumerate(names)}
            for short, name in lettered.items():
                yield Text(f"{short} = {name}", overflow="fold")
            names = list(lettered)
            at_once = max(1, room // _width([widest]))
        for first in range(0, len(names), at_once):
            yield _table(names, rows, slice(first, first + at_once))
        yield Text(CAPTION)


def _width(cells: Sequence[int]) -> int:
    """Columns of the terminal that cells of these widths take, each with its left border."""
    return sum(cell + len("│  ") for cell in cells)


def _table(names: Sequence[str], rows: Sequence[tuple[str, list[str]]], shown: slice) -> Table:
    table = Table()
    table.add_column("", no_wrap=True)
    for name in names[shown]:
        table.add_column(escape(name), justify="right", no_wrap=True)
    for label, cells in rows:
        table.add_row(label, *cells[shown])
    return table


def _own_rows(arms: Sequence[Arm]) -> list[tuple[str, list[str]]]:
    return [
        *((f"{stage} (s)", [_number(a.stage_s[stage]) for a in arms]) for stage in STAGES),
        ("step (s)", [_number(a.step_s) for a in arms]),
        ("steps", [str(a.steps) for a in arms]),
        ("tokens a step", [f"{a.tokens:.0f}" for a in arms]),
        ("generation (tokens/s)", [_number(a.generation_tokens_per_s, 0) for a in arms]),
        ("generation share R", [_number(a.generation_share) for a in arms]),
        ("acceptance length", [_number(a.acceptance_length) for a in arms]),
        ("tokens per engine step", [_number(a.tokens_per_step) for a in arms]),
    ]


def _matched_rows(arms: Sequence[SweepArm]) -> list[tuple[str, list[str]]]:
    gains = _gains(arms)
    if not any(arm.autoregressive for arm in arms):
        return []
    return [
        ("generation speedup", [_times(g.generation) if g else "-" for g in gains]),
        ("step speedup", [_times(g.step) if g else "-" for g in gains]),
        ("step speedup, equal tokens", [_times(g.step_per_token) if g else "-" for g in gains]),
        ("Amdahl bound", [_times(g.bound) if g else "-" for g in gains]),
        ("cost of an engine step", [_number(g.step_cost) if g else "-" for g in gains]),
        ("c(k) = alpha / S", [_number(g.draft_cost) if g else "-" for g in gains]),
    ]


def _gains(arms: Sequence[SweepArm]) -> list[Speedup | None]:
    baselines = {arm.settings: arm.arm for arm in arms if arm.autoregressive}
    return [_gain(baselines.get(arm.settings), arm.arm) for arm in arms]


def _gain(baseline: Arm | None, arm: Arm) -> Speedup | None:
    """None without a baseline, and where one of the two generated nothing."""
    if baseline is None or None in (baseline.generation_tokens_per_s, arm.generation_tokens_per_s):
        return None
    return speedup_over(baseline, arm)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
