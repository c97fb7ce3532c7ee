"""The fit of a draft: resume, schedule, progress, estimate and record."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from specrl.draft_init import (
    LOWEST_SHARE,
    Fit,
    FitPlan,
    FitState,
    acceptance_lengths,
    rate_share,
)
from specrl.draft_record import InitRecord, read_record, write_record
from specrl.draft_responses import Watch
from specrl.errors import EngineError
from specrl.fakes import FakeEngine, FakeLearner, FakeTask, Faults
from specrl.types import Metrics, Rollout, Sampling

PLAN = FitPlan(
    passes=3,
    learning_rate=1.0,
    warmup_share=0.1,
    tv_share=0.0,
    shard_tokens=10_000,
    update_tokens=20,
    k=4,
)


@dataclass
class Clock:
    """Every look at it is `step` seconds after the last."""

    step: float = 1.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@dataclass
class Trained(FakeLearner):
    """Remembers learning rates and microbatches of every part."""

    rates: list[float] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def fit_draft(
        self, learning_rate: float, part: int = 0, parts: int = 1, loss: str | None = None
    ) -> Metrics:
        metrics = super().fit_draft(learning_rate, part, parts, loss)
        self.rates.append(learning_rate)
        self.seen += [f"{r.group}.{r.sample}" for r in self.captured[part::parts]]
        return metrics


def rollouts(count: int, max_tokens: int = 12) -> list[Rollout]:
    engine = FakeEngine(version=0)
    return engine.generate(FakeTask().train(0, count), 2, Sampling(max_tokens=max_tokens, seed=5))


def learner(faults: Faults | None = None) -> Trained:
    return Trained(weight=8.0, draft_weight=0.0, faults=faults or Faults())


def watch(notes: list[str] | None = None, step: float = 1.0) -> Watch:
    said = [] if notes is None else notes
    return Watch(note=said.append, progress=lambda _: lambda _: None, clock=Clock(step))


def fit(
    folder: Path, trained: Trained, plan: FitPlan = PLAN, seen: Watch | None = None
) -> FitState:
    return Fit(trained, rollouts(20), rollouts(3), plan, folder, seen or watch()).run()


def test_every_pass_sees_every_response_once(tmp_path: Path) -> None:
    trained = learner()
    state = fit(tmp_path, trained)
    assert len(trained.rates) == state.parts > 2 * PLAN.passes
    assert sorted(trained.seen) == sorted([f"{r.group}.{r.sample}" for r in rollouts(20)] * 3)
    assert state.tokens == 3 * sum(len(r.token_ids) for r in rollouts(20))


def test_responses_beyond_memory_are_fitted_shard_by_shard(tmp_path: Path) -> None:
    trained = learner()
    fit(tmp_path, trained, replace(PLAN, shard_tokens=100))
    whole = sorted([f"{r.group}.{r.sample}" for r in rollouts(20)] * 3)
    assert sorted(trained.seen) == whole
    captured = trained.events.count("capture")
    assert captured % PLAN.passes == 0
    assert captured >= 2 * PLAN.passes


def test_the_estimate_rises_with_the_fit_and_is_kept_for_every_k(tmp_path: Path) -> None:
    state = fit(tmp_path, learner())
    assert len(state.acceptance_before) == len(state.acceptance) == PLAN.k
    assert state.acceptance[2] > state.acceptance_before[2]
    assert list(state.acceptance) == sorted(state.acceptance)


def test_the_last_share_of_the_fit_lowers_the_rejection_rate(tmp_path: Path) -> None:
    trained = learner()
    fit(tmp_path, trained, replace(PLAN, tv_share=0.34))
    fits = [event for event in trained.events if event.startswith("fit draft")]
    by_tv = [event.endswith(" by tv") for event in fits]
    assert by_tv == sorted(by_tv)
    assert sum(by_tv) == pytest.approx(0.34 * len(fits), abs=1)


@pytest.mark.parametrize("broken", [0, 1, 5])
def test_a_killed_fit_goes_on_with_the_same_schedule(tmp_path: Path, broken: int) -> None:
    reference = learner()
    whole = fit(tmp_path / "whole", reference)
    killed = learner(Faults({("fit_draft", broken): EngineError("killed")}))
    with pytest.raises(EngineError):
        fit(tmp_path / "killed", killed, seen=watch(step=100.0))
    again = learner()
    state = fit(tmp_path / "killed", again, seen=watch(step=100.0))
    assert killed.rates + again.rates == reference.rates
    assert (state.parts, state.tokens, state.loss) == (whole.parts, whole.tokens, whole.loss)
    assert state.acceptance_before == whole.acceptance_before
    assert again.draft_weight == reference.draft_weight


def test_a_finished_fit_is_not_repeated(tmp_path: Path) -> None:
    state = fit(tmp_path, learner())
    again = learner()
    assert fit(tmp_path, again) == state
    assert again.rates == []


def test_a_stop_is_saved_at_once(tmp_path: Path) -> None:
    stopped = learner()
    asked = replace(watch(step=0.0), stop=lambda: len(stopped.rates) >= 4)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, stopped, seen=asked)
    again = learner()
    fit(tmp_path, again)
    reference = learner()
    fit(tmp_path / "whole", reference)
    assert len(stopped.rates) == 4
    assert stopped.rates + again.rates == reference.rates


def test_saves_are_a_minute_apart(tmp_path: Path) -> None:
    faults = Faults()
    often, seldom = learner(faults), learner(Faults())
    fit(tmp_path / "often", often, seen=watch(step=100.0))
    fit(tmp_path / "seldom", seldom, seen=watch(step=0.01))
    assert often.faults.seen["save_draft"] == len(often.rates) + 1
    assert seldom.faults.seen["save_draft"] == 2


def test_damaged_saves_start_the_fit_again_and_are_named(tmp_path: Path) -> None:
    killed = learner(Faults({("fit_draft", 3): EngineError("killed")}))
    with pytest.raises(EngineError):
        fit(tmp_path, killed, seen=watch(step=100.0))
    for path in tmp_path.rglob("draft.json"):
        path.write_text("[]")
    notes: list[str] = []
    again = learner()
    fit(tmp_path, again, seen=watch(notes))
    reference = learner()
    fit(tmp_path / "whole", reference)
    assert again.rates == reference.rates
    assert any("not intact" in note for note in notes)


def test_progress_says_part_loss_acceptance_speed_and_what_is_left(tmp_path: Path) -> None:
    notes: list[str] = []
    fit(tmp_path, learner(), seen=watch(notes, step=20.0))
    lines = [note for note in notes if note.startswith("draft fit")]
    assert len(lines) > 3
    for word in ("loss", "expected acceptance", "tok/s", "ETA"):
        assert word in lines[0]
    assert lines[-1].endswith("ETA 0 s")


@dataclass
class Timed(Trained):
    """Spends `capture_s` in each capture and 2 s in each part."""

    clock: Clock = field(default_factory=lambda: Clock(step=0.0))
    capture_s: float = 100.0

    def capture(self, rollouts: Sequence[Rollout]) -> int:
        self.clock.now += self.capture_s
        return super().capture(rollouts)

    def fit_draft(
        self, learning_rate: float, part: int = 0, parts: int = 1, loss: str | None = None
    ) -> Metrics:
        self.clock.now += 2.0
        return super().fit_draft(learning_rate, part, parts, loss)


@pytest.mark.parametrize("shard_tokens", [10_000, 100])
def test_what_is_left_counts_the_captures_to_come_and_not_those_before(
    tmp_path: Path, shard_tokens: int
) -> None:
    notes: list[str] = []
    trained = Timed(weight=8.0, draft_weight=0.0)
    seen = replace(watch(notes), clock=trained.clock)
    state = fit(tmp_path, trained, replace(PLAN, shard_tokens=shard_tokens), seen)
    first = next(note for note in notes if note.startswith("draft fit 1/"))
    assert f"ETA {trained.clock.now - 102:.0f} s" in first
    assert state.seconds == trained.clock.now
    again = [note for note in notes if note.startswith("draft fit")][-1]
    assert f"{state.tokens / (2 * state.parts):.0f} tok/s" in again


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    shares = [rate_share(x / 200, 0.1) for x in range(200)]
    assert shares[0] == 0.0
    assert max(shares) == pytest.approx(1.0)
    assert shares.index(max(shares)) == 20
    assert shares[20:] == sorted(shares[20:], reverse=True)
    assert shares[-1] == pytest.approx(LOWEST_SHARE, abs=1e-3)
    assert rate_share(0.5, 0.0) == pytest.approx((1 + LOWEST_SHARE) / 2)
    assert rate_share(0.5, 1.0) == 0.5


def test_lengths_count_the_bonus_token_and_every_k() -> None:
    certain = FakeLearner(weight=0.0, draft_weight=0.0)
    responses = [r for r in rollouts(30, max_tokens=400) if len(r.token_ids) > 100]
    lengths = acceptance_lengths(certain, responses, 3)
    assert lengths == pytest.approx((2.0, 3.0, 4.0), rel=0.03)
    one_token = [replace(responses[0], token_ids=(1,), rollout_logprobs=np.zeros(1, np.float32))]
    assert acceptance_lengths(certain, one_token, 2) == (1.0, 1.0)


def test_a_record_comes_back_and_tells_the_figures_of_a_run(tmp_path: Path) -> None:
    record = InitRecord(
        init="dapo",
        policy="tiny",
        built="2026-01-01T00:00:00+00:00",
        prompt_source="the training prompts of arithmetic",
        prompts=10,
        sampling="probabilistic",
        response_tokens=99,
        generation_s=2.0,
        fit_s=3.0,
        acceptance=(1.5, 1.75),
        acceptance_before=(1.0, 1.0),
    )
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert record.metrics(1) == {
        "init/seconds": 5.0,
        "init/tokens": 99.0,
        "init/prompts": 10.0,
        "init/acceptance_length/probabilistic": 1.5,
    }
    assert record.metrics(7)["init/acceptance_length/probabilistic"] == 1.75
    greedy = replace(record, sampling="greedy")
    assert greedy.metrics(1)["init/acceptance_length/greedy"] == 1.5
    assert len(replace(record, acceptance=()).metrics(3)) == 3
    assert any("1.75 (k=2)" in line for line in record.lines())


def test_a_folder_that_specrl_did_not_make_has_no_record(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    (tmp_path / "init.json").write_text('{"policy": 1}')
    assert read_record(tmp_path) is None
