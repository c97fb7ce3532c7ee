"""Every command that the report prints is one that specrl takes."""

import shlex
from collections.abc import Iterator
from itertools import product

import pytest
from report_records import full_report
from synthetic import AR, EAGLE, no_views, run_of, untold

from analysis import plan
from analysis.compose import compose
from analysis.figures.collection import all_pictures
from analysis.paper import REGIMES, load_paper
from analysis.records import Report, Run
from specrl.config.compose import load

ASKED = ["experiment=rl_zero_cpu", "rollout.max_tokens=96", "drafter.k=3", "init.seed=3"]
EXPERIMENTS = (*REGIMES, "rl_think_cpu", "rl_zero_cpu", "demo")


def report_of(*runs: Run) -> Report:
    return compose(load_paper(), runs, no_views, 1, untold)


REPORTS = {
    "paper only": report_of(),
    "an autoregressive run": report_of(run_of(AR, overrides=tuple(ASKED[:2]))),
    "a draft alone": report_of(run_of(EAGLE, overrides=tuple(ASKED))),
    "of everything": full_report(),
}


def points_of(command: str) -> Iterator[list[str]]:
    """The overrides of each run that a command would start."""
    program, *words = shlex.split(command)
    assert program == "specrl"
    sweep = "-m" in words
    choices = [w.split("=", 1) for w in words if w != "-m"]
    values = [value.split(",") if sweep else [value] for _, value in choices]
    for point in product(*values):
        yield [f"{key}={value}" for (key, _), value in zip(choices, point, strict=True)]


def commands_of(report: Report) -> set[str]:
    told = {missing.command for family in report.families for missing in family.missing}
    told |= {absent.command for p in all_pictures(report) for absent in p.missing}
    notes = [note for table in report.tables for note in table.notes]
    told |= {note.partition(": ")[2] for note in notes if note.startswith("missing, made by")}
    return told - {""}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_every_command_that_is_printed_composes(name: str) -> None:
    commands = commands_of(REPORTS[name])
    assert commands or name == "of everything"
    for command in commands:
        for overrides in points_of(command):
            assert load(overrides).steps > 0, command


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_command_of_an_arm_makes_that_arm(experiment: str) -> None:
    for key in plan.wanted(plan.regime_of(experiment)):
        command = plan.missing(experiment, key).command
        if not command:
            continue
        (overrides,) = points_of(command)
        config = load(overrides)
        assert (config.name, config.drafter.name) == (experiment, key.drafter)
        assert key.k is None or str(config.drafter.k) == key.k
        assert key.init is None or config.init.name == key.init
        assert key.adaptation is None or config.adaptation.name == key.adaptation


def test_an_arm_that_specrl_cannot_run_yet_has_no_command() -> None:
    lagging = [m for f in REPORTS["paper only"].families for m in f.missing if m.key.max_lag]
    assert len(lagging) == 2 * len(REGIMES)
    for missing in lagging:
        assert bool(missing.command) == plan.available(plan.ASYNC)
    assert plan.available("execution=sync")
    assert not plan.available("execution=sideways")
