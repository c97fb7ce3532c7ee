"""How step costs are timed, corrected and kept, on fake workers."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from specrl.algo.draft_length import Schedule, StepCosts
from specrl.errors import EngineError
from specrl.fakes import InProcessActor
from specrl.rollout.records import Advance, SampleRequest
from specrl.rollout.settings import EngineSettings
from specrl.rollout.step_costs import (
    TIMED_STEPS,
    WARM_STEPS,
    Measured,
    StepTiming,
    batch_sizes,
    engine_step_costs,
    full_draft_seconds,
    kept_step_costs,
    measure_step_costs,
    step_cost_key,
    time_steps,
)
from specrl.types import Placement, Sampling

COSTS = Measured(
    StepCosts((1, 2), (0, 3), ((1.0, 1.5), (1.1, float("inf"))), (0.9, 1.0)),
    at="2026-01-01T00:00:00+00:00",
    load=1.5,
    spread=0.1,
)
SETTINGS = EngineSettings("policy", 512, speculative_config={"method": "ngram"})


@dataclass
class FakeWorker:
    """Prefills `starts` requests a step; every running request drafts and yields one token."""

    starts: int = 1000
    room: int = 1000
    lengths: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    waiting: int = 0
    running: int = 0
    steps: int = 0
    sampling: Sampling = field(default_factory=Sampling)

    def set_draft_lengths(self, schedule: Any) -> None:
        self.lengths.append(tuple(schedule))

    def enqueue(self, requests: list[SampleRequest], sampling: Sampling) -> None:
        self.waiting, self.running, self.sampling = len(requests), 0, sampling

    def advance(self, budget_s: float) -> Advance:
        assert budget_s == 0.0
        started = min(self.starts, self.waiting)
        self.waiting -= started
        drafts, self.running = self.running, self.running + started
        self.steps += 1
        tokens = self.running if self.steps <= self.room else 0
        return Advance((), self.running + self.waiting, tokens, drafts, 0)


def test_steps_are_timed_once_all_requests_run() -> None:
    worker = FakeWorker(starts=3)
    timing = time_steps(worker, worker.enqueue, batch=8, schedule=((8, 5),))
    assert worker.lengths == [((8, 5),)]
    assert worker.steps == 3 + WARM_STEPS + TIMED_STEPS
    assert (timing.batch, timing.drafting) == (8, 1.0)
    assert 0 <= timing.seconds < 1
    assert timing.spread >= 0
    assert worker.sampling.ignore_eos
    assert worker.sampling.temperature > 0


@pytest.mark.parametrize("worker", [FakeWorker(starts=0), FakeWorker(room=3)])
def test_requests_that_do_not_run_together_are_refused_with_the_way_out(
    worker: FakeWorker,
) -> None:
    with pytest.raises(EngineError, match=r"raise model\.max_model_len.*fixed drafter\.k"):
        time_steps(worker, worker.enqueue, batch=8, schedule=((8, 5),))


@dataclass
class TimedWorker:
    factor: float = 1.0
    most: int = 1000
    now_s: float = 0.0
    takes_s: float = 0.1
    spread: float = 0.0

    def step_seconds(self, batch: int, schedule: Schedule, top_p: float) -> StepTiming:
        assert top_p == 0.9
        length = 0.4 if len(schedule) == 2 else schedule[0][1]
        assert schedule[0] == (batch, int(length))
        self.now_s += self.takes_s * batch
        batch = min(batch, self.most)
        seconds = self.factor * (1 + 0.1 * batch + 0.01 * length)
        return StepTiming(batch, seconds, float(length > 0), self.spread)


def actors(*workers: TimedWorker) -> list[InProcessActor]:
    return [InProcessActor(f"engine-{n}", worker) for n, worker in enumerate(workers)]


def test_every_length_is_timed_at_every_batch_and_the_slowest_replica_counts() -> None:
    fast, slow = TimedWorker(), TimedWorker(factor=2.0)
    costs = measure_step_costs(actors(fast, slow), largest_batch=6, longest=4, top_p=0.9).costs
    assert costs.batches == (1, 2, 4, 6)
    assert costs.lengths == (0, 1, 2, 3, 4)
    assert costs.plain[2] == pytest.approx(2 * 1.4)
    assert costs.seconds[2] == pytest.approx([2 * (1.4 + 0.01 * k) for k in (0.4, 1, 2, 3, 4)])


@dataclass
class DisturbedWorker(TimedWorker):
    """A neighbour doubles the seconds of the timings of `spell`."""

    spell: range = range(5)
    timings: int = 0

    def step_seconds(self, batch: int, schedule: Schedule, top_p: float) -> StepTiming:
        timing = super().step_seconds(batch, schedule, top_p)
        disturbed = self.timings in self.spell
        self.timings += 1
        return replace(timing, seconds=timing.seconds * (2 if disturbed else 1))


@pytest.mark.parametrize("spell", [range(5), range(14), range(3 * 14, 4 * 14), range(44, 53)])
def test_a_spell_of_noise_leaves_no_trace_in_the_costs(spell: range) -> None:
    quiet = measure_step_costs(actors(TimedWorker()), 8, longest=7, top_p=0.9).costs
    disturbed = actors(DisturbedWorker(spell=spell))
    assert measure_step_costs(disturbed, 8, longest=7, top_p=0.9).costs == quiet


def test_an_engine_is_measured_at_its_first_start_only(tmp_path: Path) -> None:
    notes: list[str] = []
    workers = [TimedWorker(), TimedWorker()]
    settings = replace(SETTINGS, speculative_config={"num_speculative_tokens": 2})
    for _ in range(2):
        costs = engine_step_costs(
            tmp_path, settings, Placement((0,)), actors(*workers), 5, 0.9, notes.append
        )
        assert (costs.batches, costs.lengths) == ((1, 2, 3), (0, 1, 2))
        workers.clear()
        workers.append(TimedWorker(factor=9.0))
        workers.append(TimedWorker(factor=9.0))
    assert costs.plain[0] < 2
    assert "kept in" in notes[0]
    assert "remeasure" not in notes[0]
    assert "taken from" in notes[1]
    assert "measured 20" in notes[1]
    assert "drafter.remeasure=true measures anew" in notes[1]


def test_costs_of_a_busy_machine_are_told_and_measured_anew_when_asked(tmp_path: Path) -> None:
    notes: list[str] = []
    settings = replace(SETTINGS, speculative_config={"num_speculative_tokens": 2})

    def costs(worker: TimedWorker, again: bool) -> StepCosts:
        place = Placement((0,))
        return engine_step_costs(
            tmp_path, settings, place, actors(worker), 2, 0.9, notes.append, again
        )

    busy = costs(TimedWorker(factor=3.0, spread=0.8), again=False)
    quiet = costs(TimedWorker(), again=True)
    assert busy.plain[0] == pytest.approx(3 * quiet.plain[0])
    assert costs(TimedWorker(factor=9.0), again=False) == quiet
    assert "80% apart (a busy machine); drafter.remeasure=true" in notes[0]
    assert not any("(a busy machine)" in note for note in notes[1:])


def test_batches_that_the_engine_never_runs_are_left_out() -> None:
    costs = measure_step_costs(actors(TimedWorker(most=4)), 32, longest=1, top_p=0.9).costs
    assert costs.batches == (1, 2, 4)


def test_a_slow_engine_is_measured_for_about_a_minute() -> None:
    worker = TimedWorker(takes_s=0.5)
    costs = measure_step_costs(
        actors(worker), 512, longest=1, top_p=0.9, clock=lambda: worker.now_s
    ).costs
    assert worker.now_s <= 60
    assert costs.batches == (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, (1,)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))]
)
def test_batch_sizes_are_powers_of_two_and_the_largest(
    largest: int, sizes: tuple[int, ...]
) -> None:
    assert batch_sizes(largest) == sizes


def test_missing_drafts_are_extrapolated_and_never_taken_for_cheap_ones() -> None:
    cells = [StepTiming(4, 1.0, 0.0), StepTiming(4, 1.2, 0.95), StepTiming(4, 1.3, 0.5)]
    assert full_draft_seconds((0, 1, 2), cells) == pytest.approx((1.0, 1.2, 1.6))
    none = [StepTiming(4, 1.0, 0.0), StepTiming(4, 1.0, 0.0)]
    assert full_draft_seconds((0, 7), none) == (1.0, float("inf"))


def test_costs_are_measured_once_and_kept(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure() -> Measured:
        measured.append(1)
        return COSTS

    first = kept_step_costs(tmp_path, {"machine": "a"}, measure)
    second = kept_step_costs(tmp_path, {"machine": "a"}, measure)
    assert first == (COSTS, second[1], True)
    assert second[0] == COSTS
    assert second[2] is False
    assert json.loads(second[1].read_text())["key"] == {"machine": "a"}
    assert kept_step_costs(tmp_path, {"machine": "b"}, measure)[2]
    assert len(measured) == 2
    assert len(list((tmp_path / "step_costs").iterdir())) == 2


@pytest.mark.parametrize(
    "damage", ["", "{}", '{"seconds": [[1.0, 1.5], [1.1]]}', '{"at": null, "load": null}', "null"]
)
def test_damaged_costs_are_measured_again(tmp_path: Path, damage: str) -> None:
    path = kept_step_costs(tmp_path, {}, lambda: COSTS)[1]
    whole = json.loads(path.read_text())
    other = json.loads(damage) if damage else None
    path.write_text(json.dumps(whole | other) if other else damage)
    assert kept_step_costs(tmp_path, {}, lambda: COSTS) == (COSTS, path, True)


def test_what_changes_costs_changes_the_key(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    model = str(tmp_path)
    settings = replace(SETTINGS, model=model)
    keys = [
        step_cost_key(settings, cores=(0, 1), num_gpus=0, replicas=1, batch=64),
        step_cost_key(settings, cores=(0,), num_gpus=0, replicas=1, batch=64),
        step_cost_key(settings, cores=(0, 1), num_gpus=0, replicas=2, batch=64),
        step_cost_key(settings, cores=(0, 1), num_gpus=0, replicas=1, batch=32),
        step_cost_key(settings, cores=(0, 1), num_gpus=0, replicas=1, batch=64, top_p=0.9),
        step_cost_key(replace(settings, dtype="float32"), (0, 1), 0, 1, 64),
        step_cost_key(replace(settings, engine_args={"enforce_eager": False}), (0, 1), 0, 1, 64),
        step_cost_key(
            replace(settings, speculative_config={"method": "eagle3", "model": model}),
            (0, 1),
            0,
            1,
            64,
        ),
    ]
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == len(keys)
    assert keys[0]["vllm"] != "unknown"
    assert re.fullmatch(r"[0-9a-f]{16}", keys[0]["policy"])
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')
    assert step_cost_key(settings, (0, 1), 0, 1, 64)["policy"] != keys[0]["policy"]


def test_the_draft_counts_by_its_shape_not_by_where_it_lies(tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        speculation = {"method": "eagle3", "model": str(tmp_path / name)}
        keys.append(step_cost_key(replace(SETTINGS, speculative_config=speculation), (), 0, 1, 8))
    assert keys[0] == keys[1]
