"""EAGLE-3 in a real engine: exactness, the weight pair, draft lengths that change."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_engines import BLOCK, EAGLE3, ToyEngine, start_toy
from rollout_toys import (
    VOCAB,
    draft_weights,
    snapshot,
    toy,
    toy_draft,
    worst_logprob_error,
)
from test_engine_logprobs import prompts_of
from test_exact_sampling import SAMPLES, p_value_of

from specrl.algo.acceptance import total
from specrl.errors import EngineError, PublishError
from specrl.rollout.records import SampleRequest
from specrl.types import Rollout, Sampling

pytestmark = pytest.mark.slow

LONG = Sampling(max_tokens=24, ignore_eos=True, seed=5)


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A draft over 5 of 8 tokens, sampled, verified by block."""
    target = "breaking_worker:BreakingWorker"
    started = start_toy(tmp_path_factory.mktemp("reduced"), EAGLE3 | BLOCK, target=target)
    yield started
    started.actor.kill()


def sampled(started: ToyEngine, prompts: Sequence[int] = (9, 20, 31)) -> list[Rollout]:
    return started.engine.generate(prompts_of(prompts), 32, LONG)


def accepted(rollouts: Sequence[Rollout]) -> tuple[int, ...]:
    return total(r.spec for r in rollouts if r.spec is not None).num_accepted_tokens


def test_block_verification_samples_the_policys_distribution(reduced: ToyEngine) -> None:
    p_value, kept = p_value_of(reduced, temperature=0.7, top_p=0.9)
    assert p_value > 1e-4
    assert kept > SAMPLES // 20


def test_greedy_drafts_sample_the_policys_distribution(tmp_path: Path) -> None:
    started = start_toy(tmp_path, EAGLE3 | {"draft_sample_method": "greedy"})
    try:
        p_value, kept = p_value_of(started, temperature=0.7, top_p=1.0)
    finally:
        started.actor.kill()
    assert p_value > 1e-4
    assert kept > SAMPLES // 20


def test_a_changing_draft_length_keeps_the_distribution(reduced: ToyEngine) -> None:
    """k depends on how many of the requests still run: it rises, falls and pauses as they end."""
    reduced.engine.set_draft_lengths([(100, 1), (300, 0), (600, 3), (900, 2)])
    p_value, kept = p_value_of(reduced, temperature=1.0, top_p=1.0)
    assert p_value > 1e-4
    assert kept > SAMPLES // 20
    reduced.engine.set_draft_lengths([(1, 3)])


def test_a_draft_length_holds_from_the_next_draft_on(reduced: ToyEngine) -> None:
    for k in (1, 2, 0, 3):
        reduced.engine.set_draft_lengths([(1, k)])
        rollouts = sampled(reduced)
        longest = max(drafted for rollout in rollouts for drafted, _ in rollout.draft_steps)
        assert longest == k
    reduced.engine.set_draft_lengths([(2, 3), (3, 0)])
    rollouts = reduced.engine.generate(prompts_of([9, 20, 31]), 1, LONG)
    assert {steps[0] for r in rollouts for steps in r.draft_steps[:12]} == {0}
    reduced.engine.set_draft_lengths([(1, 3)])


def test_acceptance_is_the_same_after_a_rest(reduced: ToyEngine, tmp_path: Path) -> None:
    reduced.publish(reduced.model, 1, tmp_path / "a")
    before = accepted(sampled(reduced))
    reduced.engine.set_draft_lengths([(1, 0)])
    assert accepted(sampled(reduced)) == (0, 0, 0)
    reduced.engine.set_draft_lengths([(1, 3)])
    assert accepted(sampled(reduced)) == before


def test_a_draft_after_undrafted_steps_is_accepted_as_if_all_had_been_drafted(
    reduced: ToyEngine,
) -> None:
    """Drafts are a function of what came before them only if the draft's cache has no gap."""
    late = driven(reduced, [(1, 0), (5, 0)], undrafted_steps=9)
    whole = driven(reduced, [(1, 3)], undrafted_steps=0)
    compared = 0
    for key, (tokens, starts) in whole.items():
        other_tokens, other_starts = late[key]
        assert tokens == other_tokens
        common = starts.keys() & other_starts.keys()
        assert {at: starts[at] for at in common} == {at: other_starts[at] for at in common}
        compared += sum(starts[at][0] > 0 for at in common)
    assert compared > 20


def driven(
    started: ToyEngine, schedule: list[tuple[int, int]], undrafted_steps: int
) -> dict[int, tuple[tuple[int, ...], dict[int, tuple[int, int]]]]:
    """Greedy responses, and (drafted, accepted) by the token that a step began with.

    `schedule` holds for the first steps, k=3 afterwards.
    """
    actor, prompts = started.actor, prompts_of([5, 9, 14, 20, 26, 31])
    requests = [SampleRequest(i, p.id, p.token_ids) for i, p in enumerate(prompts)]
    actor.call("add", requests, Sampling(temperature=0.0, max_tokens=30, ignore_eos=True))
    actor.call("set_draft_lengths", schedule)
    finished = []
    for _ in range(undrafted_steps):
        finished += actor.call("advance", 0.0).finished
    actor.call("set_draft_lengths", [(1, 3)])
    finished += actor.call("advance", float("inf")).finished
    return {sample.key: (sample.token_ids, starts_of(sample.draft_steps)) for sample in finished}


def starts_of(steps: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    starts, at = {}, 0
    for drafted, kept in steps:
        starts[at] = (drafted, kept)
        at += kept + 1
    # The last step may have been cut.
    return {at: step for at, step in starts.items() if step[0] > 0 and at < 26}


def test_steps_are_consistent_with_the_counts(reduced: ToyEngine) -> None:
    for rollout in sampled(reduced):
        spec, steps = rollout.spec, rollout.draft_steps
        assert spec is not None
        assert len(steps) == spec.num_decode_steps
        surplus = len(steps) + sum(kept for _, kept in steps) - len(rollout.token_ids)
        assert surplus in {0, 1}
        for i in range(3):
            assert sum(drafted > i for drafted, _ in steps) == spec.num_draft_tokens[i]
            assert sum(kept > i for _, kept in steps) == spec.num_accepted_tokens[i]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([(1, 4)], "draft length 4 is not allowed, this engine drafts up to 3"),
        ([(4, 1), (2, 0)], "ascend from 1"),
        ([], "ascend from 1"),
    ],
)
def test_a_wrong_schedule_is_refused(
    reduced: ToyEngine, schedule: list[tuple[int, int]], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        reduced.engine.set_draft_lengths(schedule)


def test_a_published_pair_drafts_as_a_fresh_engine_on_it(
    reduced: ToyEngine, tmp_path: Path
) -> None:
    """Embeddings are the policy's: a draft left with the old ones would accept otherwise."""
    model, draft = toy(seed=11), toy_draft(seed=12, vocab=5)
    draft["d2t"] = torch.tensor([0, 0, 1, 2, 3])
    reduced.publish(model, 2, tmp_path / "new", draft)
    published = sampled(reduced)
    reduced.publish(reduced.model, 1, tmp_path / "back")
    assert worst_logprob_error(model, published) < 1e-4
    other = sampled(reduced)
    assert worst_logprob_error(reduced.model, other) < 1e-4

    fresh = start_toy(tmp_path / "fresh", EAGLE3 | BLOCK, policy=model, draft=draft)
    try:
        anew = sampled(fresh)
    finally:
        fresh.actor.kill()
    assert [r.token_ids for r in anew] == [r.token_ids for r in published]
    assert [r.draft_steps for r in anew] == [r.draft_steps for r in published]
    assert accepted(published) != accepted(other)


def test_a_full_vocabulary_draft_that_equals_the_policys_head_stays_its_own(
    tmp_path: Path,
) -> None:
    """vLLM would let both share one module, and the draft's publish would overwrite the policy."""
    policy, draft = toy(seed=0), toy_draft(seed=1, vocab=VOCAB)
    equal = draft | {"lm_head.weight": policy.lm_head.weight.detach().clone()}
    started = start_toy(tmp_path, EAGLE3, policy=policy, draft=equal)
    try:
        started.publish(policy, 2, tmp_path / "new", draft)
        assert worst_logprob_error(policy, sampled(started)) < 1e-4
        p_value, kept = p_value_of(started, temperature=0.7, top_p=1.0)
    finally:
        started.actor.kill()
    assert p_value > 1e-4
    assert kept > SAMPLES // 20


def test_policy_and_draft_come_together_or_not_at_all(reduced: ToyEngine, tmp_path: Path) -> None:
    alone = snapshot(reduced.model, tmp_path / "alone", 2)
    with pytest.raises(PublishError, match="brings no draft, but the engine was started with"):
        reduced.engine.load_weights(alone)
    damaged = reduced.snapshot(toy(seed=11), 2, tmp_path / "damaged")
    assert damaged.draft is not None
    content = bytearray(damaged.draft.path.read_bytes())
    content[-1] ^= 1
    damaged.draft.path.write_bytes(content)
    with pytest.raises(PublishError, match=r"draft\.safetensors: .* checksum"):
        reduced.engine.load_weights(damaged)
    rollouts = sampled(reduced)
    assert {r.versions for r in rollouts} == {(1,)}
    assert worst_logprob_error(reduced.model, rollouts) < 1e-4


def test_a_draft_that_breaks_off_puts_both_old_models_back(
    reduced: ToyEngine, tmp_path: Path
) -> None:
    reduced.publish(reduced.model, 1, tmp_path / "a")
    before = sampled(reduced)
    reduced.actor.call("break_next_load", RuntimeError("the rest is lost"), "draft")
    with pytest.raises(PublishError, match="the rest is lost"):
        reduced.publish(toy(seed=11), 2, tmp_path / "b", toy_draft(seed=12, vocab=5))
    after = sampled(reduced)
    assert [r.token_ids for r in after] == [r.token_ids for r in before]
    assert [r.draft_steps for r in after] == [r.draft_steps for r in before]


@pytest.mark.parametrize("name", ["fc.weight", "midlayer.mlp.up_proj.weight", "lm_head.weight"])
def test_a_draft_that_did_not_become_what_was_published_is_named(
    reduced: ToyEngine, tmp_path: Path, name: str
) -> None:
    reduced.actor.call("lose_when_loading", name)
    with pytest.raises(PublishError, match=f"does not hold .*{name}"):
        reduced.publish(toy(seed=11), 2, tmp_path / "b", toy_draft(seed=12, vocab=5))
    assert {r.versions for r in sampled(reduced)} == {(1,)}


@pytest.mark.parametrize("part", ["model.fc", "lm_head", "model.norm"])
def test_a_draft_that_was_overwritten_after_the_publish_is_named(
    reduced: ToyEngine, tmp_path: Path, part: str
) -> None:
    reduced.actor.call("zero_draft", part)
    with pytest.raises(EngineError, match=rf"live draft's {part}\.weight is no longer"):
        sampled(reduced)
    reduced.publish(reduced.model, 1, tmp_path / "again")
    assert sum(accepted(sampled(reduced))) > 0


def test_a_draft_for_an_engine_without_one_is_refused(
    tied_engine: ToyEngine, tmp_path: Path
) -> None:
    policy = snapshot(toy(seed=11, tied=True), tmp_path, 2)
    pair = replace(policy, draft=draft_weights(toy_draft(seed=1, vocab=5), tmp_path))
    with pytest.raises(PublishError, match="brings a draft, but the engine was started without"):
        tied_engine.engine.load_weights(pair)


def test_layers_other_than_the_engines_are_refused_by_both_names(tmp_path: Path) -> None:
    config = {"specrl": {"aux_layers": [0, 1, 3]}}
    with pytest.raises(
        EngineError, match=r"layers \[0, 1, 2\], but .* specrl.aux_layers=\[0, 1, 3\]"
    ):
        start_toy(tmp_path, EAGLE3, draft_config=config)
