"""Unfinished, NaN, empty, single-step and crashed runs give a message, never a wrong number."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import AR, EAGLE, Truth, no_views, run_of, untold, views_of, write_folder

from analysis.compose import compose
from analysis.folders import find_folders, read_folder, read_views
from analysis.paper import load_paper
from analysis.records import Run
from analysis.sources import Filter, Source
from specrl.errors import UserError


def broken(run: Run, metric: str, value: float, step: int = 5) -> Run:
    steps = run.steps.copy()
    steps.loc[step, metric] = value
    return replace(run, steps=steps)


def misjudged(run: Run, accuracy: float) -> Run:
    return replace(run, evaluations=run.evaluations.assign(**{"eval/accuracy": accuracy}))


def single(run: Run) -> Run:
    return replace(run, steps=run.steps.iloc[:1])


EAGLE_RUN = run_of(EAGLE, Truth(alpha=2.6, cost=1.7), name="spec")


def configured(key: str, value: str) -> Run:
    return replace(EAGLE_RUN, config={**EAGLE_RUN.config, key: value})


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (broken(EAGLE_RUN, "time/generation_s", np.nan), "time/generation_s is nan at step 5"),
        (broken(EAGLE_RUN, "time/step_s", np.inf), "time/step_s is inf at step 5"),
        (broken(EAGLE_RUN, "time/logprob_s", -1.0), "time/logprob_s is -1.0 at step 5"),
        (broken(EAGLE_RUN, "rollout/tokens", np.nan), "rollout/tokens is nan at step 5"),
        (broken(EAGLE_RUN, "reward/mean", np.nan), "reward/mean is not finite at step 5"),
        (broken(EAGLE_RUN, "time/step_s", 0.5), "stages of step 5 take longer than the step"),
        (broken(EAGLE_RUN, "spec/acceptance_length", 0.5), "acceptance_length is 0.5 at step 5"),
        (broken(EAGLE_RUN, "spec/acceptance_length", np.nan), "acceptance_length is nan at step 5"),
        (replace(EAGLE_RUN, steps=EAGLE_RUN.steps.iloc[:0]), "no finished step"),
        (single(EAGLE_RUN), "1 finished step(s), and the first 1 are warm-up"),
        (replace(EAGLE_RUN, status="failed: engine died"), "failed: engine died after 40 steps"),
        (replace(EAGLE_RUN, config={}), "run.json is missing or damaged"),
        (configured("drafter.name", ""), "drafter.name is missing"),
        (configured("execution.max_lag", "soon"), "execution.max_lag is soon in run.json"),
        (broken(EAGLE_RUN, "spec/acceptance_length", 9.0), "is 9.0 at step 5, not between 1 and 4"),
        (broken(EAGLE_RUN, "spec/tokens_per_step", np.inf), "spec/tokens_per_step is inf at step"),
        (broken(EAGLE_RUN, "spec/num_drafts", -1.0), "spec/num_drafts is -1.0 at step 5"),
        (broken(EAGLE_RUN, "time/draft_s", -1.0), "time/draft_s is -1.0 at step 5"),
        (broken(EAGLE_RUN, "init/seconds", np.inf), "init/seconds is inf at step 5"),
        (misjudged(EAGLE_RUN, 2.0), "eval/accuracy is 2.0 at step 0"),
    ],
)
def test_a_broken_run_is_left_out_and_named(run: Run, message: str) -> None:
    report = compose(load_paper(), [run_of(AR), run], no_views, 1, untold)
    found = [p for p in report.problems if p.run == "spec"]
    assert [p.left_out for p in found] == [True]
    assert message in found[0].text
    assert not any(family.matches for family in report.families)


@pytest.mark.parametrize("status", [None, "interrupted"])
def test_an_unfinished_run_counts_over_the_steps_it_has_and_is_named(status: str | None) -> None:
    run = replace(EAGLE_RUN, status=status, steps=EAGLE_RUN.steps.iloc[:25])
    report = compose(load_paper(), [run_of(AR), run], no_views, 1, untold)
    found = [p for p in report.problems if p.run == "spec"]
    assert [p.left_out for p in found] == [False]
    assert "25 of 40 steps" in found[0].text
    assert [pair.steps for family in report.families for pair in family.matches] == [24]


def test_a_finished_run_whose_last_lines_are_lost_is_named() -> None:
    run = replace(EAGLE_RUN, steps=EAGLE_RUN.steps.iloc[:25])
    report = compose(load_paper(), [run_of(AR), run], no_views, 1, untold)
    assert [p.text for p in report.problems] == ["finished: 25 of 40 steps"]


def test_missing_steps_are_named() -> None:
    run = replace(EAGLE_RUN, steps=EAGLE_RUN.steps.drop(index=[7, 8]))
    report = compose(load_paper(), [run_of(AR), run], no_views, 1, untold)
    assert "2 steps are missing, the first is 7" in {p.text for p in report.problems}


def test_nothing_but_broken_runs_still_gives_the_papers_part() -> None:
    report = compose(load_paper(), [single(EAGLE_RUN)], no_views, 1, untold)
    assert {family.regime for family in report.families} == {"rl_think", "rl_zero"}
    assert not any(family.arms for family in report.families)
    assert {check.source for check in report.checks} == {"paper"}


def test_a_folder_gives_the_run_that_was_written(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    read = read_folder(folder)
    pd.testing.assert_frame_equal(read.steps, EAGLE_RUN.steps)
    pd.testing.assert_frame_equal(read.evaluations, EAGLE_RUN.evaluations)
    assert read.config == EAGLE_RUN.config
    assert read.status == "finished"


def test_values_that_are_not_finite_come_back_as_they_were(tmp_path: Path) -> None:
    run = broken(EAGLE_RUN, "reward/mean", np.inf)
    read = read_folder(write_folder(tmp_path / "run", run))
    assert np.isinf(read.steps.loc[5, "reward/mean"])
    assert np.isfinite(read.steps.drop(index=5)["reward/mean"]).all()


def test_a_damaged_line_and_a_cut_one_cost_only_themselves(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = lines[3][:50] + "\n"
    path.write_text("".join(lines) + '{"step": 40, "met')
    steps = read_folder(folder).steps
    assert list(steps.index) == [0, 1, 2, *range(4, 40)]
    pd.testing.assert_frame_equal(steps, EAGLE_RUN.steps.drop(index=3))


def test_damaged_lines_are_counted_by_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = lines[7] = "{}\n"
    path.write_text("".join(lines))
    report = compose(load_paper(), [read_folder(folder)], no_views, 1, untold)
    assert "2 damaged line(s) of 40 in metrics.jsonl left out" in {p.text for p in report.problems}


def test_a_line_that_only_the_careful_reading_takes_is_not_called_damaged(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = json.dumps({**json.loads(lines[3]), "step": 3.0})
    path.write_text("\n".join(lines) + "\n")
    run = read_folder(folder)
    assert run.notes == ()
    assert len(run.steps) == len(EAGLE_RUN.steps)


def as_folder(path: Path) -> None:
    path.mkdir()


def as_link_to_nothing(path: Path) -> None:
    path.symlink_to("gone")


def as_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def as_endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def as_noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(1 << 20))


@pytest.mark.parametrize(
    ("replace_by", "told"),
    [
        (as_folder, "is no file"),
        (as_link_to_nothing, "is a link to nothing"),
        (as_link_to_itself, "cannot be read: "),
        (as_endless_device, "is no file"),
        (as_huge, "more than 1073741824: not read"),
        (as_noise, "damaged"),
    ],
)
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_file_that_is_none_is_told_and_stops_nothing(
    name: str, replace_by: Callable[[Path], None], told: str, tmp_path: Path
) -> None:
    write_folder(tmp_path / "ar", run_of(AR))
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    (folder / name).unlink()
    replace_by(folder / name)
    runs = Source([tmp_path]).read(Filter(), untold)
    assert {run.name for run in runs} == {"ar", "run"}
    report = compose(load_paper(), runs, Source([tmp_path]).views, 1, untold)
    said = [p for p in report.problems if p.run == "run"]
    assert any(told in p.text for p in said)
    assert any(p.left_out for p in said)
    assert read_views(folder).index.isin(range(40)).all()


@pytest.mark.parametrize(
    ("metric", "value", "told"),
    [
        ("spec/acceptance_rate_pos_1", 1.4, "acceptance_rate_pos_1 is 1.4 at step 5, outside"),
        ("spec/acceptance_rate_pos_1", -0.1, "acceptance_rate_pos_1 is -0.1 at step 5, outside"),
        ("spec/drafted_pos_2", 1e6, "drafted_pos_2 is 1000000.0 at step 5, below 0 or above"),
        ("spec/drafted_pos_0", np.inf, "drafted_pos_0 is inf at step 5, below 0 or not finite"),
    ],
)
def test_impossible_views_are_told_by_name_and_enter_no_number(
    metric: str, value: float, told: str
) -> None:
    (views,) = views_of([EAGLE_RUN])
    views.loc[5, metric] = value
    report = compose(load_paper(), [run_of(AR), EAGLE_RUN], lambda _: [views], 1, untold)
    assert [told in p.text for p in report.problems] == [True]
    assert report.views == ()
    assert [arm.position_rates for f in report.families for arm in f.arms] == [(), ()]
    assert any(family.matches for family in report.families)


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1e999, "time": 1, "metrics": {}}',
        '{"step": null, "time": 1, "metrics": {"time/step_s": 1}}',
        '{"step": 7, "time": 1, "metrics": {}, "non_finite": {"reward/mean": "banana"}}',
        '{"step": 7, "time": 1, "metrics": {}, "non_finite": [1]}',
        '{"step": 7, "time": 1, "metrics": {"spec/num_drafts": {"a": 1}}}',
        "[" * 100_000,
    ],
)
def test_a_line_of_the_wrong_kind_costs_only_itself(line: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text() + line + "\n")
    pd.testing.assert_frame_equal(read_folder(folder).steps, EAGLE_RUN.steps)
    assert len(read_views(folder)) == len(EAGLE_RUN.steps)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("created_s", "yesterday"),
        ("created_s", float("nan")),
        ("config", [1]),
        ("status", 3),
        ("overrides", None),
        ("overrides", [1]),
        ("key", [1]),
        ("machine", 3),
        ("git_commit", 3),
    ],
)
def test_a_run_json_of_the_wrong_kind_counts_as_damaged(
    key: str, value: object, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    report = compose(load_paper(), [read_folder(folder)], no_views, 1, untold)
    assert ["run.json is missing or damaged" in p.text for p in report.problems] == [True]


def test_of_a_step_written_twice_the_last_counts_joined_with_an_evaluation(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    path = folder / "metrics.jsonl"
    first = '{"step": 40, "time": 1.0, "metrics": {"eval/accuracy": 0.7}}\n'
    path.write_text(path.read_text() + first + path.read_text().splitlines()[39].replace(
        '"step": 39', '"step": 40') + "\n")  # fmt: skip
    read = read_folder(folder)
    assert read.steps.index[-1] == 40
    assert read.evaluations.loc[40, "eval/accuracy"] == 0.7
    assert read.steps.loc[40, "time/step_s"] == pytest.approx(read.steps.loc[39, "time/step_s"])


@pytest.mark.parametrize("text", ["", "\n", "not json\n"])
def test_a_folder_without_a_step_says_so(tmp_path: Path, text: str) -> None:
    folder = write_folder(tmp_path / "run", EAGLE_RUN)
    (folder / "metrics.jsonl").write_text(text)
    report = compose(load_paper(), [read_folder(folder)], no_views, 1, untold)
    assert [p.text for p in report.problems if p.left_out] == [
        "no finished step; let it run longer"
    ]


def test_folders_are_found_below_a_root_and_an_empty_root_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "a" / "one", EAGLE_RUN)
    write_folder(tmp_path / "two", EAGLE_RUN)
    (tmp_path / "none").mkdir()
    assert [path.name for path in find_folders([tmp_path])] == ["one", "two"]
    with pytest.raises(UserError, match="no run in it"):
        find_folders([tmp_path / "none"])
    with pytest.raises(UserError, match="no such folder"):
        find_folders([tmp_path / "gone"])
