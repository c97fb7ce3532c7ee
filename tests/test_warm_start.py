"""The supervised pass: its order, its loss, its checkpoints, what it says of the model."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from specrl.fakes import FakeEngine, FakeLearner, FakeTask
from specrl.types import Metrics, Sampling, TrainSample
from specrl.warm_start import (
    SAVE_EVERY_S,
    Example,
    Fit,
    WarmStartRecord,
    Worth,
    batches,
    measure,
    read_record,
    told,
    write_record,
)

EXAMPLES = [Example((1, 2), tuple(range(n % 5 + 1))) for n in range(21)]
STEPS = batches(EXAMPLES, passes=2, batch_examples=4, seed=0)


@dataclass
class Learner(FakeLearner):
    """Remembers the responses of each step."""

    seen: list[list[tuple[int, ...]]] = field(default_factory=list)

    def step(self, samples: list[TrainSample]) -> Metrics:
        self.seen.append([sample.response_ids for sample in samples])
        return {**super().step(samples), "logprob_diff_mean": 1.0 / len(self.seen)}


@dataclass
class Clock:
    """Every look at it takes `tick_s`."""

    tick_s: float = 1.0
    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


def responses(steps):
    return [[example.response_ids for example in step] for step in steps]


def test_every_pass_shows_every_example_once_in_an_order_of_its_own():
    assert [len(step) for step in STEPS] == [4, 4, 4, 4, 4, 1] * 2
    first, second = ([e for step in half for e in step] for half in (STEPS[:6], STEPS[6:]))
    assert first != second
    assert sorted(first, key=repr) == sorted(second, key=repr) == sorted(EXAMPLES, key=repr)
    assert batches(EXAMPLES, 2, 4, seed=0) == STEPS
    assert batches(EXAMPLES, 2, 4, seed=1) != STEPS


def test_a_sample_asks_for_its_own_likelihood():
    sample = EXAMPLES[3].sample()
    assert (sample.advantage, sample.policy_logprobs) == (1.0, None)
    assert sample.rollout_logprobs.tolist() == [0.0] * 4


def test_the_fit_trains_every_step_and_says_what_it_took(tmp_path):
    learner, notes = Learner(), []
    fitted = Fit(learner, STEPS, tmp_path, notes.append, clock=Clock()).run()
    assert learner.seen == responses(STEPS)
    assert fitted.steps == 12
    assert fitted.tokens == 2 * sum(2 + len(e.response_ids) for e in EXAMPLES)
    assert fitted.seconds == 12.0
    assert fitted.nll == pytest.approx(1 / 12)
    assert notes[-1] == "warm start: step 12 of 12, 0.083 nats/token, about 0 s left"


@pytest.mark.parametrize("killed_at", [1, 5, 11])
def test_a_killed_fit_goes_on_at_its_last_save_and_ends_with_the_same_weights(tmp_path, killed_at):
    whole = Learner()
    Fit(whole, STEPS, tmp_path / "whole", print).run()
    first = Learner()
    first.faults.at["step", killed_at] = KeyboardInterrupt()
    clock = Clock(tick_s=SAVE_EVERY_S)
    with pytest.raises(KeyboardInterrupt):
        Fit(first, STEPS, tmp_path / "work", print, clock=clock).run()
    again, notes = Learner(), []
    fitted = Fit(again, STEPS, tmp_path / "work", notes.append).run()
    assert again.seen == responses(STEPS[killed_at:])
    assert again.weight == whole.weight
    assert notes[0] == f"warm start: going on at step {killed_at} of 12"
    assert fitted.seconds >= killed_at * SAVE_EVERY_S


def test_an_interrupted_fit_saves_at_once(tmp_path):
    learner = Learner()
    with pytest.raises(KeyboardInterrupt):
        Fit(learner, STEPS, tmp_path, print, stop=lambda: len(learner.seen) == 3).run()
    again = Learner()
    Fit(again, STEPS, tmp_path, print).run()
    assert again.seen == responses(STEPS[3:])


def test_damaged_checkpoints_cost_time_and_nothing_else(tmp_path):
    learner = Learner()
    with pytest.raises(KeyboardInterrupt):
        Fit(learner, STEPS, tmp_path, print, stop=lambda: len(learner.seen) == 3).run()
    for path in tmp_path.rglob("learner.json"):
        path.write_text("[")
    again, notes = Learner(), []
    Fit(again, STEPS, tmp_path, notes.append).run()
    assert again.seen == responses(STEPS)
    assert "is not intact" in notes[0]


def test_accuracy_and_entropy_come_from_sampled_responses():
    engine = FakeEngine(version=1)
    worth = measure(FakeTask(), engine, 40, 5, Sampling(max_tokens=30, seed=0), lambda _: None)
    assert 0.35 < worth.accuracy < 0.65
    assert 0.02 < worth.stderr < 0.06
    assert worth.entropy == pytest.approx(1.0)
    assert 1 < worth.length < 30
    assert worth.cut == 0.0


def test_the_record_survives_the_disk(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    before, after = Worth(0.125, 0.03, 1.5, 150.0, 0.9), Worth(0.625, 0.05, 0.1, 80.0, 0.0)
    record = WarmStartRecord(1200, 75, 160_000, 400.0, 0.05, before, after)
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    line = told(tmp_path, record)
    assert "accuracy 0.12 -> 0.62 (+- 0.05), entropy 1.50 -> 0.10 nats/token" in line
