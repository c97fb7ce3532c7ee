"""What a run decides before anything starts."""

from pathlib import Path

import pytest

from specrl.build import build_plan, draft_outlook, run
from specrl.checkpoint import CheckpointStore, RunState
from specrl.config.compose import load
from specrl.config.signature import signature
from specrl.config.train import TrainConfig
from specrl.draft_record import InitRecord
from specrl.errors import RunError, UserError
from specrl.telemetry.jsonl import JsonlSink, StepRecord


def tiny(folder: Path, *overrides: str) -> TrainConfig:
    return load(["debug=tiny", "tracking=none", f"model.cache_dir={folder}/cache", *overrides])


def saved(folder: Path, state: RunState) -> None:
    store = CheckpointStore(folder / "checkpoints", keep=2, warn=lambda _: None)
    store.save(state, lambda staging: (staging / "learner").write_text("x") and None)


def test_a_finished_run_asked_again_says_so_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny(tmp_path)
    saved(tmp_path, RunState(step=2, cursor=4, config=signature(config)))
    sink = JsonlSink(tmp_path, config={})
    sink.start()
    sink.finish("finished")
    run(config, tmp_path, [])
    assert "2 steps are done already; rerun=true starts again" in capsys.readouterr().out
    assert not (tmp_path / "logs").exists()


def test_a_checkpoint_of_another_config_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, RunState(step=1, cursor=2, config="deadbeef"))
    with pytest.raises(UserError, match="belongs to another config"):
        run(tiny(tmp_path), tmp_path, [])
    assert "belongs to another config" in (tmp_path / "run.log").read_text()


def test_without_an_intact_checkpoint_the_run_does_not_start_over_by_itself(tmp_path: Path) -> None:
    saved(tmp_path, RunState(step=1, cursor=2))
    next((tmp_path / "checkpoints").rglob("learner")).write_text("changed")
    with pytest.raises(RunError, match="rerun=true"):
        run(tiny(tmp_path), tmp_path, [])


def test_a_prompt_that_leaves_no_room_is_refused_before_the_engine_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.max_model_len=16"):
        run(tiny(tmp_path, "model.max_model_len=16"), tmp_path, [])
    assert not (tmp_path / "logs").exists()


def test_a_layout_the_model_cannot_have_is_refused_before_the_engine_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tensor_parallel"):
        run(tiny(tmp_path, "learner.tensor_parallel=3"), tmp_path, [])
    assert not (tmp_path / "logs").exists()


def test_the_plan_holds_what_the_config_says() -> None:
    plan = build_plan(load(["debug=tiny", "rollout.stop=[x]", "rollout.stop_token_ids=[7]"]))
    assert plan.sampling.stop == ("x",)
    assert plan.sampling.stop_token_ids == (7,)
    assert (plan.steps, plan.prompts_per_step, plan.group_size) == (2, 2, 2)


def test_a_new_run_expects_of_its_draft_what_the_init_estimated(tmp_path: Path) -> None:
    record = InitRecord("dapo", "tiny", "now", "here", 1, "greedy", acceptance=(1.5, 1.75))
    config = tiny(tmp_path, "drafter=eagle3", "drafter.sampling=greedy")
    assert draft_outlook(config, record, [], RunState(), print).promised == [0.5, 0.25]


def test_an_estimate_for_other_drafts_promises_nothing(tmp_path: Path) -> None:
    record = InitRecord("dapo", "tiny", "now", "here", 1, "greedy", acceptance=(1.5, 1.75))
    config = tiny(tmp_path, "drafter=eagle3", "drafter.sampling=probabilistic")
    outlook = draft_outlook(config, record, [], RunState(), print)
    assert (outlook.fitted, outlook.promised) == (True, None)


@pytest.mark.parametrize(("init", "fitted"), [("checkpoint", True), ("random", False)])
def test_a_draft_from_elsewhere_must_be_above_the_floor_and_an_unfitted_one_need_not(
    tmp_path: Path, init: str, fitted: bool
) -> None:
    where = ["init.path=/draft"] if init == "checkpoint" else []
    config = tiny(tmp_path, "drafter=eagle3", f"init={init}", *where)
    outlook = draft_outlook(config, None, [], RunState(), print)
    assert (outlook.fitted, outlook.promised) == (fitted, None)


def test_a_resumed_run_judges_its_draft_by_the_steps_before(tmp_path: Path) -> None:
    records = [
        StepRecord(step, 0.0, {"spec/acceptance_rate_pos_0": rate} if rate else {})
        for step, rate in enumerate((0.5, None, 0.25))
    ]
    config = tiny(tmp_path, "drafter=eagle3")
    outlook = draft_outlook(config, None, records, RunState(step=3), print)
    assert (outlook.promised, outlook.history, outlook.fitted) == (None, [0.5, 0.25], True)
