"""Every figure of a report, in the order in which a reader needs them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analysis import plan
from analysis.figures.acceptance import VIEWS, acceptance_view
from analysis.figures.bound import measured_against_bound
from analysis.figures.cells import HeatCell, end_to_end_cells, rollout_cells, scale_cells
from analysis.figures.curves import training_curves
from analysis.figures.heatmap import Panel, draft_length_heatmap, lag_heatmap
from analysis.figures.picture import Absent, Picture
from analysis.figures.training import acceptance_over_training
from analysis.figures.waterfall import step_waterfall
from analysis.figures.words import slug
from analysis.paper import Paper
from analysis.records import AmdahlCheck, Arm, Family, GridCell, Report

MODELS = (("qwen3_235b_a22b", "Qwen3-235B-A22B"), ("qwen3_8b", "Qwen3-8B"))
GPUS = (32, 128, 512, 2048)
LAGS = (0, 2, 4, 8)
NOTHING_DRAFTED = Absent("a drafter", "specrl drafter=eagle3")
MOST_LINES = 6
"""Arms on one picture of curves; the rest is in the tables."""


def all_pictures(report: Report) -> tuple[Picture, ...]:
    """Names are unique. Where runs are missing, the picture says which command makes them."""
    pictures = [measured_against_bound(report.checks)]
    pictures += [step_waterfall(check) for check in _one_each(report.checks)]
    for family in report.families:
        pictures += _of_family(family, report)
    if not any(picture.name.startswith("acceptance") for picture in pictures):
        pictures.append(_no_acceptance(report.families))
    pictures += scale_pictures(report.grid, report.paper)
    return _unique(pictures)


def scale_pictures(grid: Sequence[GridCell], paper: Paper) -> list[Picture]:
    """Figures 3 and 4: deployment scale, from a table of cells."""
    ks, acceptances = paper.grid_k, paper.grid_acceptance
    heat = draft_length_heatmap(
        rollout_cells(grid), end_to_end_cells(grid, paper), ks, acceptances, paper.generation_share
    )
    panels = []
    for letter, (model, title) in zip("ab", MODELS, strict=True):
        cells = scale_cells(grid, model)
        if model == "qwen3_8b" and not cells:
            low, high = paper.scale_8b
            cells = [HeatCell(lag, gpus, low, "printed", high) for gpus in GPUS for lag in LAGS]
        panels.append(Panel(f"({letter}) {title}", cells))
    return [heat, lag_heatmap(panels, GPUS, LAGS)]


def _of_family(family: Family, report: Report) -> list[Picture]:
    arms = _drawn_arms(family)
    order = [arm.label for arm in family.arms]
    suffix = slug(f"{family.regime} {family.settings}")
    absent = _absent(family)
    pictures = [training_curves(family, arms, absent, order)]
    drafting = [arm for arm in arms if arm.key.drafter != "none"]
    if not drafting:
        return [replace(picture, name=f"figure2_{suffix}") for picture in pictures]
    rows = [row for row in report.views if row.title == family.title]
    for view in VIEWS:
        picture = acceptance_view(rows, view, family.title, order)
        if view == "lag" and len({row.order for row in rows if row.view == "lag"}) < 2:
            absent_lag = Absent("a policy lag above 0", _lag_command(family))
            picture = replace(picture, figure=None, caption="", missing=(absent_lag,))
        pictures.append(picture)
    pictures.append(acceptance_over_training(drafting, family.title, order))
    names = ["figure2", *(f"acceptance_{view}" for view in VIEWS), "acceptance_training"]
    return [
        replace(picture, name=f"{name}_{suffix}")
        for name, picture in zip(names, pictures, strict=True)
    ]


def _no_acceptance(families: Sequence[Family]) -> Picture:
    """One gap for all views of acceptance where nothing was drafted at all."""
    title = "Acceptance by draft position, place and length of the response, lag, and over training"
    absent = [
        Absent(f"{missing.key.label} ({family.title})", missing.command)
        for family in families
        for missing in family.missing
        if missing.key.drafter == "eagle3" and missing.key.init == "dapo" and missing.key.k == "3"
        and missing.key.adaptation == "offline"
    ]  # fmt: skip
    return Picture("acceptance", title, "", title, None, tuple(absent) or (NOTHING_DRAFTED,))


def _drawn_arms(family: Family) -> list[Arm]:
    """The autoregressive arm and those that match it, fastest first."""
    matches = [match for match in family.matches if not match.refused]
    matches.sort(key=lambda match: -match.step.value if match.step else 0.0)
    baselines = [arm for arm in family.arms if arm.key.drafter == "none"]
    arms = [*baselines[:1], *(match.arm for match in matches)]
    if len(arms) < 2:
        arms = list(family.arms)
    return arms[:MOST_LINES]


def _absent(family: Family) -> list[Absent]:
    """The two arms of Figure 2 that no run gives."""
    wanted = [
        missing
        for missing in family.missing
        if missing.key.max_lag == 0
        and (missing.key.drafter == "none" or missing.key.k == "3")
        and missing.key.drafter in {"none", "eagle3"}
        and missing.key.init in {None, "dapo"}
        and missing.key.adaptation in {None, "offline"}
    ]
    return [Absent(f"{m.key.label} ({family.title})", m.command) for m in wanted]


def _lag_command(family: Family) -> str:
    """The command for an arm with a policy lag, "" while there is none."""
    lagging = [missing.command for missing in family.missing if missing.key.max_lag]
    return lagging[0] if lagging else plan.missing(family.experiment, plan.eagle3(lag=1)).command


def _one_each(checks: Sequence[AmdahlCheck]) -> list[AmdahlCheck]:
    """The fastest arm of every family, ours and the paper's."""
    best: dict[tuple[str, str], AmdahlCheck] = {}
    for check in checks:
        place = (check.title, check.source)
        if place not in best or check.step.value > best[place].step.value:
            best[place] = check
    return list(best.values())


def _unique(pictures: Iterable[Picture]) -> tuple[Picture, ...]:
    seen: dict[str, int] = {}
    named = []
    for picture in pictures:
        seen[picture.name] = seen.get(picture.name, 0) + 1
        number = seen[picture.name]
        name = picture.name if number == 1 else f"{picture.name}-{number}"
        named.append(replace(picture, name=name))
    return tuple(named)
