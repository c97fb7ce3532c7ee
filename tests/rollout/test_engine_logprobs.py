"""The engine's log-probs are those of an independent Hugging Face forward on the same tokens."""

from collections.abc import Sequence

import numpy as np
import pytest
from rollout_engines import ToyEngine
from rollout_toys import MAX_MODEL_LEN, VOCAB, worst_logprob_error

from specrl.algo.acceptance import spec_metrics
from specrl.errors import EngineError
from specrl.types import GenerationProgress, Prompt, Rollout, Sampling

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4


def prompts_of(lengths: Sequence[int]) -> list[Prompt]:
    draw = np.random.default_rng(0)
    return [
        Prompt(f"length/{n}", "", tuple(map(int, draw.integers(0, VOCAB, n))), {}) for n in lengths
    ]


def check_counts(rollout: Rollout, drafts: bool) -> None:
    """Every step yields its accepted tokens and one more, except a last step that was cut."""
    assert (rollout.spec is not None) == drafts
    if rollout.spec is None:
        return
    spec = rollout.spec
    assert spec.num_tokens == len(rollout.token_ids)
    surplus = spec.num_decode_steps + sum(spec.num_accepted_tokens) - spec.num_tokens
    assert surplus in {0, 1}
    assert spec.num_drafts <= spec.num_decode_steps
    pairs = list(zip(spec.num_accepted_tokens, spec.num_draft_tokens, strict=True))
    assert all(accepted <= drafted for accepted, drafted in pairs)
    assert sorted(spec.num_draft_tokens, reverse=True) == list(spec.num_draft_tokens)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.3, 0.8)])
def test_logprobs_equal_those_of_an_independent_forward(
    toy_engine: ToyEngine, temperature: float, top_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=20, ignore_eos=True)
    rollouts = toy_engine.engine.generate(prompts_of([1, 2, 7, 19, 33, 40]), 8, sampling)
    error = worst_logprob_error(toy_engine.model, rollouts, temperature=temperature, top_p=top_p)
    assert error < TOLERANCE
    assert [(r.group, r.sample) for r in rollouts] == [(g, s) for g in range(6) for s in range(8)]
    for rollout in rollouts:
        assert len(rollout.token_ids) == 20
        assert rollout.finish_reason == "length"
        assert rollout.versions == (1,)
        assert rollout.latency_s > 0
        check_counts(rollout, toy_engine.drafts)
    assert (num_drafts(rollouts) > 0) == toy_engine.drafts
    assert bool(spec_metrics(rollout.spec for rollout in rollouts)) == toy_engine.drafts


def test_responses_near_the_longest_length_are_right_and_never_longer(
    toy_engine: ToyEngine,
) -> None:
    prompts = prompts_of(range(MAX_MODEL_LEN - 7, MAX_MODEL_LEN))
    rollouts = toy_engine.engine.generate(prompts, 16, Sampling(max_tokens=50, ignore_eos=True))
    assert worst_logprob_error(toy_engine.model, rollouts) < TOLERANCE
    for rollout in rollouts:
        assert len(rollout.prompt.token_ids) + len(rollout.token_ids) == MAX_MODEL_LEN
        assert rollout.finish_reason == "length"
        check_counts(rollout, toy_engine.drafts)


def test_a_prompt_with_one_uncached_token_starts_from_the_right_distribution(
    toy_engine: ToyEngine,
) -> None:
    """The cache holds blocks of 32 tokens; vLLM pads such a request to a verification step."""
    sampling = Sampling(max_tokens=3, ignore_eos=True)
    for _ in range(2):
        rollouts = toy_engine.engine.generate(prompts_of([33]), 1000, sampling)
        assert worst_logprob_error(toy_engine.model, rollouts) < TOLERANCE
        for rollout in rollouts:
            assert rollout.spec is None or rollout.spec.num_drafts < rollout.spec.num_decode_steps
            check_counts(rollout, toy_engine.drafts)


def test_a_stop_token_ends_the_response_even_inside_an_accepted_run(toy_engine: ToyEngine) -> None:
    stop = 3
    sampling = Sampling(max_tokens=24, stop_token_ids=(stop,))
    rollouts = toy_engine.engine.generate(prompts_of([8, 9, 21]), 400, sampling)
    assert worst_logprob_error(toy_engine.model, rollouts) < TOLERANCE
    stopped = [rollout for rollout in rollouts if rollout.finish_reason == "stop"]
    assert len(stopped) > 100
    for rollout in rollouts:
        assert stop not in rollout.token_ids[:-1]
        assert (rollout.token_ids[-1] == stop) == (rollout in stopped)
        check_counts(rollout, toy_engine.drafts)
    cut = [r for r in stopped if r.spec is not None and surplus_tokens(r) == 1]
    assert bool(cut) == toy_engine.drafts


def num_drafts(rollouts: Sequence[Rollout]) -> int:
    return sum(rollout.spec.num_drafts for rollout in rollouts if rollout.spec is not None)


def surplus_tokens(rollout: Rollout) -> int:
    assert rollout.spec is not None
    kept = rollout.spec.num_decode_steps + sum(rollout.spec.num_accepted_tokens)
    return kept - rollout.spec.num_tokens


def test_a_stop_string_ends_the_response_at_the_token_that_completes_it(
    tied_engine: ToyEngine,
) -> None:
    sampling = Sampling(max_tokens=30, stop=("cd",))
    rollouts = tied_engine.engine.generate(prompts_of([6, 11]), 100, sampling)
    assert worst_logprob_error(tied_engine.model, rollouts) < TOLERANCE
    stopped = [rollout for rollout in rollouts if rollout.finish_reason == "stop"]
    assert len(stopped) > 10
    assert num_drafts(stopped) > 5
    for rollout in rollouts:
        letters = "".join("abcdefgh"[token] for token in rollout.token_ids)
        assert ("cd" in letters) == (rollout in stopped)
        assert "cd" not in letters[:-1]
        assert rollout.text == letters.removesuffix("cd")
        check_counts(rollout, tied_engine.drafts)


def test_a_prompt_without_room_is_refused_before_anything_runs(toy_engine: ToyEngine) -> None:
    seen: list[GenerationProgress] = []
    with pytest.raises(EngineError, match=r"length/64 has 64 tokens.*model\.max_model_len=64"):
        toy_engine.engine.generate(
            prompts_of([5, MAX_MODEL_LEN]), 2, Sampling(max_tokens=4), seen.append
        )
    assert seen == []


def test_progress_adds_up_and_an_interrupted_call_leaves_the_engine_usable(
    toy_engine: ToyEngine,
) -> None:
    sampling = Sampling(max_tokens=30, ignore_eos=True)
    seen: list[GenerationProgress] = []

    def interrupt(progress: GenerationProgress) -> None:
        seen.append(progress)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toy_engine.engine.generate(prompts_of([9] * 200), 40, sampling, interrupt)
    assert seen[0].finished < seen[0].total
    seen.clear()
    rollouts = toy_engine.engine.generate(prompts_of([9, 12]), 4, sampling, seen.append)
    assert worst_logprob_error(toy_engine.model, rollouts) < TOLERANCE
    assert seen[-1].finished == seen[-1].total == 8
    assert seen[-1].tokens == 8 * 30
    assert (seen[-1].acceptance_length is not None) == toy_engine.drafts
