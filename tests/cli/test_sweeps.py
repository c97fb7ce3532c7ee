"""The sweeps of the paper's tables and figures: they compose, and their arms are matched."""

from dataclasses import asdict
from functools import cache
from itertools import groupby

import pytest

from specrl.cli.sweep import planned
from specrl.config import tree
from specrl.config.compose import load
from specrl.config.node_layout import gpus_needed, node_layout
from specrl.config.store import register
from specrl.sweep.points import distinct
from specrl.telemetry.mlflow_run import flatten

# Runs of one regime, and what tells those with a learned draft apart.
GRIDS = {
    "table1": (2, set()),
    "table2": (3, set()),
    "table3": (3, {"init.name"}),
    "table4": (4, {"drafter.k"}),
    "table5": (5, {"init.name", "adaptation.name"}),
    "figure2": (2, set()),
}
SIZES = {"": ["rl_think_cpu", "rl_zero_cpu"], "_paper": ["rl_think", "rl_zero"]}
ALL = [(name, size) for name in GRIDS for size in SIZES]
QUICK = ("table1", "table2")  # the others have up to 24 points, each composed
EACH = [
    pytest.param(*pair, marks=[] if pair[0] in QUICK else pytest.mark.slow, id="".join(pair))
    for pair in ALL
]


@cache
def runs(*words: str):
    register()
    plan = planned([], list(words))
    assert plan is not None
    return distinct(plan.tasks)


def regimes(*words: str):
    tasks = sorted(runs(*words), key=lambda task: task.config.name)
    return {name: list(group) for name, group in groupby(tasks, lambda task: task.config.name)}


def test_every_sweep_is_listed_here():
    assert sorted(tree.options("sweep")) == sorted(f"{name}{size}" for name, size in ALL)


@pytest.mark.parametrize(("name", "size"), EACH)
def test_a_sweep_has_the_runs_of_its_table_in_both_regimes(name, size):
    count, _ = GRIDS[name]
    found = regimes(f"sweep={name}{size}")
    assert {regime: len(tasks) for regime, tasks in found.items()} == dict.fromkeys(
        SIZES[size], count
    )


@pytest.mark.parametrize(("name", "size"), EACH)
def test_arms_differ_in_what_is_swept_only(name, size):
    _, swept = GRIDS[name]
    if size == "_paper" and "init.name" in swept:
        swept = swept | {"init.path"}  # of ultrachat_200k
    for tasks in regimes(f"sweep={name}{size}").values():
        assert [task.config.drafter.name for task in tasks].count("none") == 1
        rest = [{**asdict(task.config), "drafter": 0, "init": 0, "adaptation": 0} for task in tasks]
        assert all(other == rest[0] for other in rest)
        learned = [flatten(asdict(t.config)) for t in tasks if t.config.drafter.learned]
        assert {key for key in learned[0] if len({arm[key] for arm in learned}) > 1} == swept


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_the_tables_share_their_runs(size):
    folders = {task.folder for name in GRIDS for task in runs(f"sweep={name}{size}")}
    assert len(folders) == 2 * len({"none", "ngram", "k3", "k5", "k7", "chat", "on", "chat on"})


def test_drafts_at_paper_size_have_the_papers_vocabulary():
    drafters = [task.config.drafter for task in runs("sweep=table2_paper")]
    sizes = {drafter.name: getattr(drafter, "vocab_size", None) for drafter in drafters}
    assert sizes == {"none": None, "ngram": None, "eagle3": 32000}


@pytest.mark.parametrize("regime", SIZES["_paper"])
@pytest.mark.parametrize("name", GRIDS)
def test_at_paper_size_no_node_of_the_papers_cluster_is_idle(name, regime):
    config = load([f"sweep={name}_paper", f"experiment={regime}", "cluster=gb200_nvl72"])
    assert config.name == regime
    assert gpus_needed(config) == 32
    assert node_layout(config).idle_nodes == 0


def test_one_regime_and_a_dry_size_can_be_asked_for():
    found = regimes("sweep=table5", "experiment=rl_zero_cpu", "debug=tiny")
    assert list(found) == ["rl_zero_cpu"]
    assert {task.config.model.name for task in found["rl_zero_cpu"]} == {"tiny"}
    assert len(found["rl_zero_cpu"]) == 5


@pytest.mark.parametrize("choice", tree.groups()["sweep"], ids=lambda choice: choice.name)
def test_every_sweep_says_its_budget(choice):
    assert "# Budget (estimate): " in choice.text
    assert ("GPU-hours" if choice.name.endswith("_paper") else "hours on 2 cores") in choice.text
