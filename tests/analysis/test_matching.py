"""Arms are compared only where everything that must agree does."""

from dataclasses import replace

import pytest
from synthetic import AR, EAGLE, Truth, no_views, run_of, untold, views_of

from analysis import plan
from analysis.compose import compose
from analysis.matching import arm_key, arms_of, differences, families, must_agree
from analysis.paper import load_paper
from analysis.records import ArmKey, Family, Report, Run

SPEC = ArmKey("eagle3", "3", "dapo", "offline")


def report_of(*runs: Run) -> Report:
    return compose(load_paper(), runs, no_views, 1, untold)


def family_of(report: Report, experiment: str = "rl_zero_cpu") -> Family:
    return next(family for family in report.families if family.experiment == experiment)


def with_config(run: Run, **config: str) -> Run:
    changed = {key.replace("__", "."): value for key, value in config.items()}
    return replace(run, config={**run.config, **changed})


def test_a_matched_pair_has_a_speedup_with_its_interval() -> None:
    report = report_of(run_of(AR), run_of(EAGLE, Truth(alpha=2.6, cost=1.7)))
    pair = family_of(report).match(SPEC)
    assert pair is not None
    assert not pair.refused
    assert pair.generation.low < 2.6 / 1.7 < pair.generation.high
    assert (pair.seeds, pair.steps, pair.cautions) == (("0",), 39, ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("task.name", "gsm8k"),
        ("rollout.max_tokens", "128"),
        ("rollout.engine_args", '{"max_num_seqs": 4}'),
        ("learner.tensor_parallel", "2"),
        ("model.name", "other"),
    ],
)
def test_arms_that_do_not_match_are_refused_by_naming_the_key_and_both_values(
    key: str, value: str
) -> None:
    arm = run_of({**EAGLE, key: value}, Truth(alpha=2.6, cost=1.7))
    report = report_of(run_of(AR), arm)
    pairs = [pair for family in report.families for pair in family.matches]
    assert [pair.refused for pair in pairs] == [True]
    assert (pairs[0].generation, pairs[0].step) == (None, None)
    usual = run_of(AR).config[key]
    assert [str(d) for d in pairs[0].differences] == [f"{key}: {usual} against {value}"]
    assert not [check for check in report.checks if check.source == "ours"]
    cells = [c for t in report.tables for row in t.rows for c in row.cells if c.kind == "refused"]
    assert f"{key}: {usual} against {value}" in cells[0].note


def test_another_machine_refuses_and_an_unknown_one_is_flagged() -> None:
    arm = run_of(EAGLE, Truth(alpha=2.6, cost=1.7))
    other = report_of(run_of(AR), replace(arm, machine="8 x GPU"))
    pair = next(pair for family in other.families for pair in family.matches)
    assert [str(d) for d in pair.differences] == ["machine: 2 x CPU against 8 x GPU"]
    unknown = family_of(report_of(run_of(AR), replace(arm, machine=""))).match(SPEC)
    assert unknown is not None
    assert not unknown.refused
    assert "machine not recorded" in unknown.cautions[0]


def test_what_changes_no_number_may_differ() -> None:
    arm = run_of({**EAGLE, "output_dir": "elsewhere", "steps": "90", "evaluation.every": "5"})
    assert differences(run_of(AR), arm) == ()
    assert "output_dir" not in must_agree(arm)


def test_another_commit_is_flagged() -> None:
    arm = replace(run_of(EAGLE, Truth(alpha=2.0, cost=1.5)), git_commit="def")
    pair = family_of(report_of(run_of(AR), arm)).match(SPEC)
    assert pair is not None
    assert pair.cautions == ("commits differ: abc, def",)


def test_seeds_are_paired_and_one_without_a_partner_is_left_out_and_named() -> None:
    def at(seed: int, config: dict[str, str], truth: Truth) -> Run:
        seeds = {key: str(seed) for key in ("seed", "task.seed", "rollout.seed")}
        return run_of({**config, **seeds}, truth, seed=seed)

    spec = Truth(alpha=2.6, cost=1.7)
    runs = [at(0, AR, Truth()), at(1, AR, Truth()), at(1, EAGLE, spec), at(2, EAGLE, spec)]
    pair = family_of(report_of(*runs)).match(SPEC)
    assert pair is not None
    assert pair.seeds == ("1",)
    assert "seed 0, 2: in one of the two only, left out" in pair.cautions
    assert pair.steps == 39


def test_arms_without_a_common_seed_are_not_compared() -> None:
    other = {"seed": "5", "task.seed": "5", "rollout.seed": "5"}
    arm = run_of({**EAGLE, **other}, Truth(alpha=2.0))
    pair = family_of(report_of(run_of(AR), arm)).match(SPEC)
    assert pair is not None
    assert pair.refused
    assert "no step and seed that both have" in pair.cautions


def test_a_shorter_arm_is_compared_over_the_steps_that_both_have() -> None:
    spec = Truth(alpha=2.6, cost=1.7, drift=0.0)
    pair = family_of(report_of(run_of(AR, steps=80), run_of(EAGLE, spec, steps=30))).match(SPEC)
    assert pair is not None
    assert pair.steps == 29
    assert "compared over the 29 steps that both have, of 79" in pair.cautions


def test_of_two_runs_with_one_config_and_seed_the_newer_counts() -> None:
    old, new = run_of(AR, name="old"), run_of(AR, name="new", created_s=2000.0)
    arms, problems = arms_of([old, new])
    assert [run.name for run in arms[ArmKey("none")]] == ["new"]
    assert [(p.run, p.left_out) for p in problems] == [("old", True)]


def test_arms_that_differ_in_other_draft_settings_are_told_apart() -> None:
    plain = run_of(EAGLE)
    small = with_config(run_of(EAGLE, name="small"), drafter__vocab_size="64")
    arms, _ = arms_of([plain, small, with_config(plain, drafter__vocab_size="128")])
    assert {key.variant for key in arms} == {
        "", "drafter.vocab_size=64", "drafter.vocab_size=128"
    }  # fmt: skip


def test_a_key_that_one_run_does_not_know_is_flagged_and_does_not_part_families() -> None:
    older = run_of(AR)
    newer = with_config(run_of(EAGLE, Truth(alpha=2.0)), rollout__new_knob="1")
    assert len(families([older, newer])) == 1
    pair = family_of(report_of(older, newer)).match(SPEC)
    assert pair is not None
    assert "rollout.new_knob: known of one run only, not compared" in pair.cautions


def test_families_of_one_experiment_are_named_after_what_differs() -> None:
    other = {"rollout.max_tokens": "128"}
    report = report_of(run_of(AR), run_of(EAGLE), run_of({**AR, **other}))
    titles = [family.title for family in report.families if family.experiment == "rl_zero_cpu"]
    assert titles == ["RL-Zero (rl_zero_cpu)", "RL-Zero (rl_zero_cpu) [2: rollout.max_tokens=128]"]


def test_arm_labels_say_what_the_arm_is() -> None:
    assert arm_key(run_of(AR).config).label == "autoregressive"
    assert arm_key(run_of(EAGLE).config).label == "eagle3 k=3 dapo offline"
    assert ArmKey("ngram", "3").label == "ngram k=3"
    assert ArmKey("none", max_lag=1).label == "autoregressive lag 1"


def test_missing_arms_are_shown_with_the_command_that_makes_them() -> None:
    given = ("experiment=rl_zero_cpu", "model=tiny", "drafter=none")
    report = report_of(run_of(AR, overrides=given))
    family = family_of(report)
    commands = {missing.key: missing.command for missing in family.missing}
    assert commands[SPEC] == (
        "specrl experiment=rl_zero_cpu model=tiny drafter=eagle3 drafter.k=3 init=dapo"
    )
    think = family_of(report, "rl_think")
    assert think.missing[0].command == "specrl experiment=rl_think drafter=none"
    lagging = any("execution.max_lag=1" in missing.command for missing in think.missing)
    assert lagging == plan.available(plan.ASYNC)


def test_a_missing_draft_is_made_like_the_drafts_that_are_there() -> None:
    ours = ("experiment=rl_zero_cpu", "drafter=eagle3", "drafter.k=3", "init.num_prompts=160")
    report = report_of(
        run_of(AR, overrides=("experiment=rl_zero_cpu", "drafter=none")),
        run_of(EAGLE, Truth(alpha=2.5), overrides=ours),
    )
    longer = next(
        m for m in family_of(report).missing if m.key == ArmKey("eagle3", "5", "dapo", "offline")
    )
    assert longer.command == (
        "specrl experiment=rl_zero_cpu init.num_prompts=160 drafter=eagle3 drafter.k=5 init=dapo"
    )


def test_position_rates_give_the_acceptance_length() -> None:
    report = compose(
        load_paper(), [run_of(AR), run_of(EAGLE, Truth(alpha=2.5))], views_of, 1, untold
    )
    arm = family_of(report).arm(SPEC)
    assert arm is not None
    assert 1 + sum(arm.position_rates) == pytest.approx(arm.acceptance.value)
    assert {row.view for row in report.views} == {"position", "lag"}
