"""Step costs and drafter.k=auto on a real engine with a toy EAGLE-3 draft."""

from collections.abc import Iterator

import pytest
from rollout_engines import ToyEngine
from rollout_toys import worst_logprob_error
from test_engine_logprobs import prompts_of

from specrl.config.drafter import DraftHealthConfig
from specrl.rollout.auto_length import AutoLengthEngine
from specrl.rollout.step_costs import measure_step_costs
from specrl.rollout.watched import WatchedEngine
from specrl.types import Sampling

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("toy_engine", ["ngram", "eagle3"], indirect=True),
]

PROMPTS = prompts_of((9, 20, 31))


@pytest.fixture
def started(toy_engine: ToyEngine) -> Iterator[ToyEngine]:
    """Drafts three tokens again afterwards, as its other tests expect."""
    yield toy_engine
    toy_engine.engine.set_draft_lengths([(1, 3)])


def test_steps_are_timed_and_the_engine_goes_on_as_before(started: ToyEngine) -> None:
    sampling = Sampling(max_tokens=16, ignore_eos=True, seed=3)
    before = started.engine.generate(PROMPTS, 4, sampling)
    costs = measure_step_costs([started.actor], largest_batch=8, longest=3).costs
    assert costs.batches == (1, 2, 4, 8)
    assert costs.lengths == (0, 1, 2, 3)
    assert all(0 < second < 5 for second in costs.plain)
    # A drafted step runs the draft and verifies more tokens: dearer, whatever the noise.
    assert sum(row[3] for row in costs.seconds) > sum(costs.plain)
    started.engine.set_draft_lengths(((1, 3),))
    after = started.engine.generate(PROMPTS, 4, sampling)
    assert [r.token_ids for r in after] == [r.token_ids for r in before]


def test_the_chosen_schedule_generates_what_the_policy_says(started: ToyEngine) -> None:
    notes: list[str] = []
    costs = measure_step_costs([started.actor], largest_batch=8, longest=3).costs
    chosen = AutoLengthEngine(started.engine, costs, 3, notes.append)
    engine = WatchedEngine(chosen, DraftHealthConfig(), "warn", notes.append)
    for seed in range(3):
        rollouts = engine.generate(PROMPTS, 4, Sampling(max_tokens=20, ignore_eos=True, seed=seed))
        assert worst_logprob_error(started.model, rollouts) < 1e-4
    metrics = engine.metrics()
    assert set(metrics) >= {"spec/schedule/0001", "spec/schedule/0008", "spec/draft_collapsed"}
    assert "a probe of 3 responses at k=3" in notes[0]
    assert "for 12 responses: k=" in notes[1]


def test_an_engine_switched_to_decoding_stays_there(started: ToyEngine) -> None:
    engine = WatchedEngine(
        started.engine, DraftHealthConfig(min_drafts=1), "disable", [].append, expected=1.0
    )
    for seed in range(2):
        sampling = Sampling(max_tokens=20, ignore_eos=True, seed=seed)
        rollouts = engine.generate(PROMPTS, 4, sampling)
    assert sum(r.spec.num_drafts for r in rollouts if r.spec is not None) == 0
    assert all(drafted == 0 for r in rollouts for drafted, _ in r.draft_steps)
