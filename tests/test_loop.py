"""The loop on fakes: order of stages, versions, resume, interruption, failure of each part."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specrl.checkpoint import CheckpointStore, RunState
from specrl.errors import (
    ActorDied,
    EngineError,
    NonFiniteError,
    PublishError,
    RunError,
    UserError,
)
from specrl.evaluate import EvaluationPlan
from specrl.fakes import Events, FakeEngine, FakeLearner, FakeTask, FakeTelemetry, Faults
from specrl.interruption import SAME_KEY_PRESS_S
from specrl.loop import Parts, Plan, train, train_step
from specrl.types import Sampling
from specrl.weight_sync.shared_memory import SharedMemorySync


def make_plan(steps: int = 4, evaluate_every: int = 0, checkpoint_every: int = 2) -> Plan:
    return Plan(
        steps=steps,
        prompts_per_step=3,
        group_size=4,
        sampling=Sampling(max_tokens=5, seed=7),
        advantage="mean",
        evaluation=EvaluationPlan(every=evaluate_every, num_prompts=2, samples=2),
        checkpoint_every=checkpoint_every,
    )


def make_parts(
    folder: Path, faults: Faults | None = None, draft_weight: float | None = None
) -> tuple[Parts, Events]:
    events: Events = []
    faults = faults or Faults()
    telemetry = FakeTelemetry(events, faults)
    engine = FakeEngine(events, faults)
    learner = FakeLearner(events, faults, draft_weight=draft_weight)
    parts = Parts(
        task=FakeTask(events, faults),
        engine=engine,
        learner=learner,
        weight_sync=SharedMemorySync(learner, engine),
        telemetry=telemetry,
        checkpoints=CheckpointStore(folder, keep=2, warn=telemetry.note),
    )
    return parts, events


def steps_of(parts: Parts) -> dict[int, dict[str, float]]:
    assert isinstance(parts.telemetry, FakeTelemetry)
    return parts.telemetry.steps


def resumed(folder: Path) -> tuple[Parts, RunState]:
    parts, _ = make_parts(folder)
    found = parts.checkpoints.newest()
    assert found is not None
    state, checkpoint = found
    assert isinstance(parts.learner, FakeLearner)
    parts.learner.load(checkpoint)
    return parts, state


def test_one_step_runs_the_five_stages_in_the_order_of_the_paper(tmp_path: Path) -> None:
    parts, events = make_parts(tmp_path)
    train_step(parts, make_plan(), RunState())
    assert events == [
        "[data", "prompts from 0", "data]",
        "[prepare", "prepare]",
        "[generation", "generate with version 0", "generation]",
        "[data", "[reward", "rewards", "reward]", "data]",
        "[logprob", "logprobs", "logprob]",
        "[training", "step", "[draft", "step draft", "draft]", "training]",
    ]  # fmt: skip


def test_every_step_generates_with_the_version_that_the_updates_so_far_made(tmp_path: Path) -> None:
    parts, events = make_parts(tmp_path)
    state = train(parts, make_plan(steps=3), RunState())
    generated = [event for event in events if event.startswith("generate")]
    assert generated == [f"generate with version {version}" for version in (0, 1, 2)]
    assert [steps_of(parts)[step]["version"] for step in (0, 1, 2)] == [0, 1, 2]
    assert state == RunState(step=3, cursor=9)
    assert resumed(tmp_path)[1] == RunState(step=3, cursor=9, run_id="fake-run")


def test_prompts_are_drawn_once_and_in_order(tmp_path: Path) -> None:
    parts, events = make_parts(tmp_path)
    train(parts, make_plan(steps=3), RunState())
    assert [e for e in events if e.startswith("prompts")] == [
        f"prompts from {n}" for n in (0, 3, 6)
    ]


def test_evaluation_runs_at_the_start_every_n_steps_and_at_the_end(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path)
    train(parts, make_plan(steps=5, evaluate_every=2), RunState())
    evaluated = [step for step, metrics in steps_of(parts).items() if "eval/accuracy" in metrics]
    assert evaluated == [0, 2, 4, 5]
    assert "time/step_s" not in steps_of(parts)[5]
    assert "reward/mean" not in steps_of(parts)[5]


def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = make_parts(tmp_path / "whole")
    train(whole, make_plan(steps=6), RunState())

    first, _ = make_parts(tmp_path / "cut", Faults({("generate", 5): KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        train(first, make_plan(steps=6), RunState())
    second, state = resumed(tmp_path / "cut")
    assert state.step == 4
    train(second, make_plan(steps=6), state)
    for step in (4, 5):
        assert steps_of(second)[step] == steps_of(whole)[step]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_in_hand_and_saves(
    tmp_path: Path, number: signal.Signals
) -> None:
    parts, _ = make_parts(tmp_path)
    interrupt_during_rewards(parts, lambda: os.kill(os.getpid(), number))
    state = train(parts, make_plan(steps=50, checkpoint_every=0), RunState())
    assert state.step == 1
    assert 0 in steps_of(parts)
    assert resumed(tmp_path)[1] == RunState(step=1, cursor=3, run_id="fake-run")


def twice(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(1.01 * SAME_KEY_PRESS_S)
    os.kill(os.getpid(), number)


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path)
    interrupt_during_rewards(parts, lambda: twice(signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(parts, make_plan(), RunState())
    assert signal.getsignal(signal.SIGINT) is before


def test_a_scheduler_that_repeats_sigterm_does_not_stop_the_step_in_hand(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path)
    interrupt_during_rewards(parts, lambda: twice(signal.SIGTERM))
    assert train(parts, make_plan(steps=50), RunState()).step == 1


def test_a_held_key_counts_once(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path)

    def held() -> None:
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGINT)

    interrupt_during_rewards(parts, held)
    assert train(parts, make_plan(steps=50), RunState()).step == 1


def interrupt_during_rewards(parts: Parts, action: Callable[[], None]) -> None:
    assert isinstance(parts.task, FakeTask)
    check = parts.task.faults.check

    def acting(event: str) -> None:
        check(event)
        if event == "rewards":
            action()

    parts.task.faults.check = acting  # type: ignore[method-assign]  # the fake's hook point


@pytest.mark.parametrize(
    ("event", "failure", "steps_done"),
    [
        ("train", UserError("the file is gone"), 3),
        ("generate", EngineError("the engine broke"), 3),
        ("load_weights", PublishError("a tensor is missing"), 3),
        ("export_weights", ActorDied("learner-0 died"), 3),
        ("generate", ActorDied("engine-0 died"), 3),
        ("generate", RuntimeError("a bug in the engine"), 3),
        ("rewards", RunError("the scorer does not start"), 3),
        ("logprobs", ActorDied("learner-0 died"), 3),
        ("log", OSError(28, "No space left on device"), 4),
    ],
)
def test_a_failure_outside_the_update_keeps_the_steps_already_done(
    tmp_path: Path, event: str, failure: Exception, steps_done: int
) -> None:
    parts, _ = make_parts(tmp_path, Faults({(event, 3): failure}))
    with pytest.raises(type(failure), match=re.escape(str(failure))):
        train(parts, make_plan(steps=9, checkpoint_every=0), RunState())
    kept, state = resumed(tmp_path)
    assert state.step == steps_done
    assert isinstance(kept.learner, FakeLearner)
    assert isinstance(parts.learner, FakeLearner)
    assert kept.learner.weight == parts.learner.weight


def test_non_finite_numbers_stop_the_run_and_keep_the_last_good_checkpoint(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path, Faults({("step", 3): NonFiniteError("loss is nan")}))
    with pytest.raises(NonFiniteError):
        train(parts, make_plan(steps=9, checkpoint_every=2), RunState())
    assert resumed(tmp_path)[1].step == 2


def test_the_first_error_is_reported_even_when_saving_fails_too(tmp_path: Path) -> None:
    faults = Faults(
        {("generate", 1): EngineError("first"), ("save", 0): ActorDied("learner-0 died")}
    )
    parts, _ = make_parts(tmp_path, faults)
    with pytest.raises(EngineError, match="first"):
        train(parts, make_plan(checkpoint_every=0), RunState())
    assert isinstance(parts.telemetry, FakeTelemetry)
    assert any("could not be saved either" in note for note in parts.telemetry.notes)


def test_a_failure_right_after_a_checkpoint_does_not_write_it_again(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path, Faults({("generate", 2): EngineError("broke")}))
    with pytest.raises(EngineError):
        train(parts, make_plan(checkpoint_every=2), RunState())
    assert isinstance(parts.telemetry, FakeTelemetry)
    assert len([note for note in parts.telemetry.notes if "checkpoint saved" in note]) == 1


def test_a_failed_publish_leaves_the_old_version_live(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path, Faults({("load_weights", 2): PublishError("corrupt")}))
    with pytest.raises(PublishError):
        train(parts, make_plan(), RunState())
    assert parts.engine.version == 1


def test_a_finished_run_asked_again_does_nothing(tmp_path: Path) -> None:
    parts, events = make_parts(tmp_path)
    state = train(parts, make_plan(steps=2), RunState())
    before = list(events)
    assert train(parts, make_plan(steps=2), state) == state
    assert events == before


def test_metrics_say_how_much_was_drafted_and_learned(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path)
    metrics = train_step_metrics(parts)
    assert metrics["spec/acceptance_length"] == 2.0
    assert metrics["spec/acceptance_rate_pos_0"] == 1.0
    assert metrics["spec/acceptance_rate_pos_1"] == 0.0
    assert 0.0 <= metrics["reward/mean"] <= 1.0
    assert metrics["rollout/length_max"] <= 5
    assert "policy/loss" in metrics


def test_a_learned_draft_is_trained_after_the_policy_and_goes_live_with_it(tmp_path: Path) -> None:
    parts, _ = make_parts(tmp_path, draft_weight=0.0)
    metrics = train_step_metrics(parts)
    assert metrics["draft/loss"] == abs(metrics["policy/loss"]) > 0
    assert metrics["draft/staleness_steps"] == 0.0
    train_step(parts, make_plan(), RunState(step=1))
    assert isinstance(parts.engine, FakeEngine)
    live = parts.engine.live
    assert live is not None
    assert live.draft is not None
    assert json.loads(live.draft.path.read_text()) == metrics["policy/loss"] / 2


def test_without_a_learned_draft_there_are_no_draft_metrics(tmp_path: Path) -> None:
    metrics = train_step_metrics(make_parts(tmp_path)[0])
    assert [name for name in metrics if name.startswith("draft/")] == []


def test_a_draft_that_fails_to_train_fails_the_step(tmp_path: Path) -> None:
    failure = ActorDied("learner-0 died")
    parts, _ = make_parts(tmp_path, Faults({("step_draft", 2): failure}), draft_weight=0.0)
    with pytest.raises(ActorDied):
        train(parts, make_plan(steps=9), RunState())
    assert sorted(steps_of(parts)) == [0, 1]


def train_step_metrics(parts: Parts) -> dict[str, float]:
    return dict(train_step(parts, make_plan(), RunState()))
