"""Runs become a report: families, arms, matches, checks, tests and decisions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

import pandas as pd

from analysis import plan
from analysis.amdahl import check_match, paper_checks
from analysis.arms import arm_of, match
from analysis.curves import curve_tests
from analysis.decisions import family_decisions, paper_decisions
from analysis.examine import examine, odd_views
from analysis.grid import paper_grid
from analysis.matching import arms_of, differences, families
from analysis.paper import REGIMES, Paper
from analysis.parallel import in_processes
from analysis.records import (
    AmdahlCheck,
    Arm,
    ArmKey,
    CurveTest,
    Family,
    Interval,
    Match,
    Problem,
    Report,
    Run,
    ViewRow,
)
from analysis.statements import paper_statements
from analysis.tables import all_tables
from analysis.views import position_rates, view_rows

ReadViews = Callable[[Sequence[Run]], Sequence[pd.DataFrame]]
Tell = Callable[[str], None]
MOST_SETTINGS = 3
VIEWED_RUNS = 24
"""Acceptance views are a couple of hundred metrics a step: reading them of more takes too long."""


def compose(
    paper: Paper,
    runs: Sequence[Run],
    read_views: ReadViews,
    warmup_steps: int,
    tell: Tell,
    sources: Sequence[str] = (),
) -> Report:
    """Everything that the runs and the paper's numbers say.

    `read_views` gives the `spec/*` metrics of each run's steps; it is asked once, for runs that
    draft, and for fewer seeds the more arms there are.
    """
    examined = [(run, examine(run, warmup_steps)) for run in runs]
    problems = [problem for _, found in examined for problem in found]
    usable = [run for run, found in examined if not any(p.left_out for p in found)]
    grouped = families(usable)
    work = _Work(warmup_steps, tell)
    work.read_views(grouped, read_views)
    made = [work.family(members) for members in grouped]
    found = _with_titles(_with_distant_baselines(made, work))
    empty = [_nothing(regime) for regime in REGIMES if regime not in {f.regime for f in found}]
    ordered = sorted([*found, *empty], key=_order)
    checks = [*work.checks(ordered), *paper_checks(paper)]
    report = Report(
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        paper=paper,
        warmup_steps=warmup_steps,
        runs=tuple(runs),
        problems=(*problems, *work.problems),
        families=tuple(ordered),
        checks=tuple(checks),
        statements=paper_statements(paper),
        curves=_curves(ordered),
        decisions=(
            *(d for f in ordered for d in family_decisions(f, checks, warmup_steps)),
            *paper_decisions(paper),
        ),
        views=work.view_rows(ordered),
        grid=paper_grid(paper),
        sources=tuple(sources),
    )
    return replace(report, tables=all_tables(report))


class _Work:
    """What composing keeps between its steps: views read at once, figures of each match."""

    def __init__(self, warmup_steps: int, tell: Tell) -> None:
        self._warmup_steps = warmup_steps
        self._tell = tell
        self._views: dict[Run, pd.DataFrame] = {}
        self._figures: dict[int, Mapping[str, Interval]] = {}
        self.problems: list[Problem] = []

    def read_views(self, grouped: Sequence[Sequence[Run]], read: ReadViews) -> None:
        """Those of every drafting arm: of all seeds, unless that were more than `VIEWED_RUNS`."""
        arms = [
            runs
            for members in grouped
            for key, runs in arms_of(members)[0].items()
            if key.drafter != "none"
        ]
        seeds = max(1, VIEWED_RUNS // max(1, len(arms)))
        chosen = [run for runs in arms for run in runs[:seeds]]
        self._tell(f"acceptance of {len(chosen)} runs")
        for run, views in zip(chosen, read(chosen), strict=True):
            counted = views.reindex(run.steps.index[self._warmup_steps :])
            odd = odd_views(counted)
            self._views[run] = counted[[]] if odd else counted
            if odd:
                text = f"{odd}; its acceptance by position and bucket is left out"
                self.problems.append(Problem(run.name, text, False))

    def family(self, members: Sequence[Run]) -> Family:
        """Arms and matches of runs that agree; titles are still those of the experiment."""
        experiment = members[0].experiment
        regime = plan.regime_of(experiment)
        by_key, problems = arms_of(members)
        self.problems += problems
        arms = [self._arm(key, runs) for key, runs in by_key.items()]
        matches = [self.matched(ar, arm) for arm in arms if (ar := _baseline(arms, arm.key))]
        wanted = [key for key in plan.wanted(regime) if key not in by_key]
        return Family(
            regime=regime,
            experiment=experiment,
            title=plan.title_of(experiment),
            settings="",
            arms=tuple(arms),
            matches=tuple(matches),
            missing=tuple(plan.missing(experiment, key, members) for key in wanted),
        )

    def matched(self, baseline: Arm, arm: Arm) -> Match:
        pair, figures = match(baseline, arm, self._warmup_steps)
        self._figures[id(pair)] = figures
        return pair

    def checks(self, found: Sequence[Family]) -> list[AmdahlCheck]:
        """One a match that is not refused."""
        return [
            check_match(family.title, family.regime, pair, self._figures[id(pair)])
            for family in found
            for pair in family.matches
            if not pair.refused
        ]

    def view_rows(self, found: Sequence[Family]) -> tuple[ViewRow, ...]:
        drafting = [(f.title, a) for f in found for a in f.arms if a.key.drafter != "none"]

        def rows_of(place: tuple[str, Arm]) -> tuple[ViewRow, ...]:
            title, arm = place
            return view_rows(title, arm.key, self._viewed(arm.runs))

        return tuple(chain.from_iterable(in_processes(rows_of, drafting)))

    def _arm(self, key: ArmKey, runs: Sequence[Run]) -> Arm:
        return arm_of(key, runs, self._warmup_steps, position_rates(self._viewed(runs)))

    def _viewed(self, runs: Sequence[Run]) -> list[pd.DataFrame]:
        return [self._views[run] for run in runs if run in self._views]


def _curves(found: Sequence[Family]) -> tuple[CurveTest, ...]:
    fair = [(f.title, pair) for f in found for pair in f.matches if not pair.refused]
    return tuple(chain.from_iterable(in_processes(lambda it: curve_tests(*it), fair)))


def _baseline(arms: Sequence[Arm], key: ArmKey) -> Arm | None:
    """The autoregressive arm with the same lag; None for an autoregressive arm itself."""
    if key.drafter == "none":
        return None
    wanted = ArmKey("none", max_lag=key.max_lag)
    return next((arm for arm in arms if arm.key == wanted), None)


def _with_distant_baselines(found: Sequence[Family], work: _Work) -> list[Family]:
    """An arm without a baseline is held against the nearest of its experiment, and so refused."""
    result = []
    for family in found:
        others = [f for f in found if f.experiment == family.experiment and f is not family]
        distant = [
            work.matched(min(candidates, key=lambda ar: _distance(ar, arm)), arm)
            for arm in family.arms
            if arm.key.drafter != "none"
            and family.match(arm.key) is None
            and (candidates := [ar for f in others if (ar := _baseline(f.arms, arm.key))])
        ]
        result.append(replace(family, matches=(*family.matches, *distant)))
    return result


def _distance(baseline: Arm, arm: Arm) -> int:
    return len(differences(baseline.runs[0], arm.runs[0]))


def _with_titles(found: Sequence[Family]) -> list[Family]:
    """Families after the first of an experiment say in what they differ from it."""
    first: dict[str, Family] = {}
    result = []
    for family in found:
        main = first.setdefault(family.experiment, family)
        if main is family:
            result.append(family)
            continue
        differing = differences(main.arms[0].runs[0], family.arms[0].runs[0])
        words = [f"{d.key}={d.value}" for d in differing[:MOST_SETTINGS]]
        words += [f"and {len(differing) - len(words)} more"] if len(differing) > len(words) else []
        settings = ", ".join(words)
        number = sum(f.experiment == family.experiment for f in result) + 1
        title = f"{family.title} [{number}: {settings}]"
        result.append(replace(family, title=title, settings=settings, missing=()))
    return result


def _nothing(regime: str) -> Family:
    return Family(
        regime=regime,
        experiment=regime,
        title=plan.title_of(regime),
        settings="",
        arms=(),
        matches=(),
        missing=tuple(plan.missing(regime, key) for key in plan.wanted(regime)),
    )


def _order(family: Family) -> tuple[int, str, str]:
    place = REGIMES.index(family.regime) if family.regime in REGIMES else len(REGIMES)
    return place, family.experiment, family.settings
