"""The health gate on a simulated engine, each way to act on a collapse, and inside the loop."""

from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_engine import SimulatedEngine

from specrl.checkpoint import CheckpointStore, RunState
from specrl.config.drafter import DraftHealthConfig
from specrl.errors import EngineError
from specrl.evaluate import EvaluationPlan
from specrl.fakes import FakeLearner, FakeTask, FakeTelemetry
from specrl.loop import Parts, Plan, train
from specrl.rollout.watched import WatchedEngine
from specrl.types import Prompt, Sampling
from specrl.weight_sync.shared_memory import SharedMemorySync

PROMPTS = [Prompt(f"p{n}", "", (1, 2), {}) for n in range(4)]
SAMPLING = Sampling(max_tokens=60)
HEALTH = DraftHealthConfig(min_drafts=100)


def one_second(k: int, batch: int) -> float:
    del k, batch
    return 1.0


def watched(
    on_collapse: str, expected: float | None = None, **simulated: float
) -> tuple[WatchedEngine, SimulatedEngine, list[str]]:
    engine = SimulatedEngine(one_second, **simulated)  # type: ignore[arg-type]  # a rate
    engine.set_draft_lengths(((1, 3),))
    notes: list[str] = []
    return WatchedEngine(engine, HEALTH, on_collapse, notes.append, expected), engine, notes


def generate(engine: WatchedEngine, times: int = 1) -> None:
    for _ in range(times):
        assert len(engine.generate(PROMPTS, 4, SAMPLING)) == 16


@pytest.mark.parametrize("on_collapse", ["fail", "warn", "disable"])
def test_a_healthy_draft_is_left_alone(on_collapse: str) -> None:
    engine, inner, notes = watched(on_collapse, expected=0.6)
    generate(engine, times=5)
    assert notes == []
    assert inner.schedule == ((1, 3),)
    assert engine.metrics() == {"spec/draft_collapsed": 0.0}


def test_fail_raises_with_the_evidence_and_the_way_out() -> None:
    engine, inner, _ = watched("fail")
    generate(engine)
    inner.rate = 0.02
    with pytest.raises(EngineError, match=r"position 0 is 0\.0\d\d over \d+ drafts.*=warn") as seen:
        generate(engine)
    assert "policy version 0" in str(seen.value)


def test_warn_says_it_once_per_collapse_and_goes_on() -> None:
    engine, inner, notes = watched("warn")
    generate(engine)
    inner.rate = 0.02
    generate(engine, times=3)
    assert len(notes) == 1
    assert engine.metrics()["spec/draft_collapsed"] == 1.0
    inner.rate = 0.6
    generate(engine)
    assert engine.metrics()["spec/draft_collapsed"] == 0.0
    inner.rate = 0.02
    generate(engine)
    assert len(notes) == 2


def test_disable_decodes_autoregressively_from_then_on() -> None:
    engine, inner, notes = watched("disable")
    generate(engine)
    inner.rate = 0.02
    generate(engine)
    assert inner.schedule == ((1, 0),)
    assert len(notes) == 1
    assert "autoregressively" in notes[0]
    inner.rate = 0.6
    engine.set_draft_lengths(((1, 3),))
    generate(engine, times=2)
    assert inner.schedule == ((1, 0),)
    assert engine.metrics()["spec/draft_collapsed"] == 1.0
    assert len(notes) == 1


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_a_draft_far_below_what_its_init_promised_is_flagged_within_the_first_call(
    rate: float,
) -> None:
    engine, _, notes = watched("warn", expected=0.6, rate=rate)
    generate(engine)
    assert len(notes) == 1


def test_a_draft_that_accepts_everything_is_flagged_by_name() -> None:
    engine, _, notes = watched("warn", rate=1 - 1e-12)
    generate(engine)
    assert "exactly 1" in notes[0]


def test_a_random_draft_is_given_time() -> None:
    engine, _, notes = watched("fail", rate=0.01)
    generate(engine, times=3)
    assert notes == []


def test_autoregressive_calls_are_no_evidence() -> None:
    engine, inner, notes = watched("fail", expected=0.6)
    inner.set_draft_lengths(((1, 0),))
    generate(engine, times=3)
    assert notes == []


def test_a_collapse_that_fails_the_run_keeps_the_steps_already_done(tmp_path: Path) -> None:
    parts, inner = loop_parts(tmp_path, "fail")
    drop_after(parts.telemetry, steps=3, drop=lambda: setattr(inner, "rate", 0.02))
    with pytest.raises(EngineError, match="collapsed"):
        train(parts, loop_plan(), RunState())
    found = parts.checkpoints.newest()
    assert found is not None
    assert found[0].step == 3


def test_a_collapse_that_is_warned_of_is_in_the_metrics(tmp_path: Path) -> None:
    parts, inner = loop_parts(tmp_path, "warn")
    drop_after(parts.telemetry, steps=3, drop=lambda: setattr(inner, "rate", 0.02))
    train(parts, loop_plan(), RunState())
    assert isinstance(parts.telemetry, FakeTelemetry)
    flags = [m["spec/draft_collapsed"] for m in parts.telemetry.steps.values()]
    assert flags == [0.0] * 3 + [1.0] * 3
    views = {name.split("/")[1] for name in parts.telemetry.steps[5] if "/by_" in name}
    assert views == {"by_lag", "by_length", "by_decile", "by_entropy", "by_token_entropy"}


def loop_parts(folder: Path, on_collapse: str) -> tuple[Parts, SimulatedEngine]:
    inner = SimulatedEngine(one_second)
    inner.set_draft_lengths(((1, 3),))
    telemetry, learner = FakeTelemetry(), FakeLearner()
    engine = WatchedEngine(inner, HEALTH, on_collapse, telemetry.note)
    sync = SharedMemorySync(learner, engine)
    store = CheckpointStore(folder, keep=2, warn=telemetry.note)
    return Parts(FakeTask(), engine, learner, sync, telemetry, store), inner


def loop_plan() -> Plan:
    return Plan(6, 4, 4, SAMPLING, "mean", EvaluationPlan(0, 2, 2), checkpoint_every=0)


def drop_after(telemetry: object, steps: int, drop: Callable[[], object]) -> None:
    assert isinstance(telemetry, FakeTelemetry)
    check = telemetry.faults.check

    def dropping(event: str) -> None:
        check(event)
        if event == "log" and telemetry.faults.seen["log"] == steps:
            drop()

    telemetry.faults.check = dropping  # type: ignore[method-assign]  # the fake's hook point
