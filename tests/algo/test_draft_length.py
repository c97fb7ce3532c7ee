"""The choice of k against closed forms and simulations."""

import numpy as np
import pytest

from specrl.algo.draft_length import (
    LEAST_GAIN,
    AcceptanceCounts,
    Choice,
    StepCosts,
    call_speedup,
    choose_lengths,
    predicted_speedups,
)

LENGTHS = tuple(range(8))
# Seconds: a step at batch b costs 40 ms + 1 ms a request; each drafted position 4 % more plus
# 0.6 ms a request.
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def linear_costs(per_position: float = 0.04, per_request: float = 0.0006) -> StepCosts:
    return StepCosts(
        BATCHES,
        LENGTHS,
        tuple(
            tuple(0.04 + 0.001 * b + k * (0.04 * per_position + per_request * b) for k in LENGTHS)
            for b in BATCHES
        ),
        tuple(0.04 + 0.001 * b for b in BATCHES),
    )


def best(
    costs: StepCosts, counts: AcceptanceCounts, longest: int = 7, current: Choice | None = None
) -> Choice:
    """The choice for a call in which every batch size occurs for equally long."""
    return choose_lengths(costs, counts, longest, range(1, 65), current)


def many_counts(rate: float, longest: int = 7, drafts: float = 1e9) -> AcceptanceCounts:
    return AcceptanceCounts.promised([rate ** (i + 1) for i in range(longest)], drafts)


def draw(rate: float, k: int, steps: int, seed: int) -> list[list[tuple[int, int]]]:
    generator = np.random.default_rng(seed)
    accepted = np.minimum(generator.geometric(1 - rate, steps) - 1, k)
    return [[(0, 0), *((k, int(a)) for a in accepted), (k, k)]]


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.9])
def test_known_acceptance_and_costs_give_the_best_length(rate: float) -> None:
    costs = linear_costs()
    choice = best(costs, many_counts(rate))
    table = np.asarray(costs.seconds)
    # Mean tokens of a step with constant acceptance: (1 - a^(k+1)) / (1 - a), arXiv:2211.17192.
    tokens = (1 - rate ** (np.asarray(LENGTHS) + 1)) / (1 - rate)
    for number in range(1, len(BATCHES)):
        worse = np.minimum(*(tokens * table[n, 0] / table[n] for n in (number - 1, number)))
        k = int(np.argmax(worse))
        assert choice.lengths[number] == (k if worse[k] >= LEAST_GAIN else 0)
        assert choice.speedups[number] == pytest.approx(worse[choice.lengths[number]], rel=2e-4)


def test_a_draft_that_is_always_accepted_is_drafted_to_the_end_where_steps_cost_nothing_more() -> (
    None
):
    choice = best(linear_costs(0.0, 0.0), many_counts(0.999), longest=7)
    assert choice.schedule == ((64, 7),)


def test_a_draft_that_is_never_accepted_is_left_out() -> None:
    assert best(linear_costs(), many_counts(0.0), longest=7).schedule == ((64, 0),)


def test_without_any_knowledge_nothing_costly_is_drafted() -> None:
    assert best(linear_costs(0.5), AcceptanceCounts(), longest=7).schedule == ((64, 0),)


def test_speculation_gives_way_as_the_batch_grows() -> None:
    lengths = best(linear_costs(), many_counts(0.6)).lengths
    assert lengths[0] > 1
    assert lengths[-1] < lengths[0]
    assert list(lengths) == sorted(lengths, reverse=True)


def test_no_length_above_the_drafters_own_is_chosen() -> None:
    assert best(linear_costs(), many_counts(0.95), longest=3).lengths[0] == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_schedule_is_never_predicted_slower_than_autoregressive(seed: int) -> None:
    generator = np.random.default_rng(seed)
    seconds = np.cumsum(generator.exponential(0.02, (len(BATCHES), len(LENGTHS))), axis=1)
    table = 0.03 + seconds
    plain = table[:, 0] * generator.uniform(0.9, 1.0, len(BATCHES))
    costs = StepCosts(BATCHES, LENGTHS, tuple(map(tuple, table.tolist())), tuple(plain.tolist()))
    counts = many_counts(float(generator.uniform(0.05, 0.95)), drafts=100)
    responses = generator.integers(1, 300, int(generator.integers(1, 65))).tolist()
    choice = choose_lengths(costs, counts, 7, responses)
    tokens = counts.tokens_per_step(7)
    drafted_s = plain_s = 0.0
    for at in range(max(responses)):
        running = sum(length > at for length in responses)
        k = next(length for largest, length in choice.schedule if running <= largest)
        alone = np.interp(running, BATCHES, plain)
        plain_s += alone
        resting = not any(choice.lengths)
        cost = alone if resting else np.interp(running, BATCHES, table[:, k])
        assert resting or k == 0 or tokens[k] >= cost / np.interp(running, BATCHES, table[:, 0])
        drafted_s += cost / tokens[k]
    assert plain_s / drafted_s >= 1.0 - 1e-12
    assert choice.speedup == pytest.approx(plain_s / drafted_s)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.15, 0.3, 0.5])
def test_few_noisy_counts_rarely_choose_what_is_slower(rate: float) -> None:
    costs = linear_costs(0.12, 0.002)
    table = costs.table(7)
    true_tokens = np.cumsum(rate ** np.arange(8))
    losses = []
    for seed in range(200):
        counts = AcceptanceCounts().with_call(draw(rate, 7, 60, seed), scheduled=7)
        choice = best(costs, counts, longest=7)
        rows = [true_tokens[k] * table[b, 0] / table[b, k] for b, k in enumerate(choice.lengths)]
        losses.append(min(rows))
    assert np.mean(np.asarray(losses) < 0.98) < 0.05


def test_noise_does_not_make_the_schedule_flicker() -> None:
    costs, current, changes = linear_costs(), None, 0
    counts = AcceptanceCounts()
    for seed in range(30):
        counts = counts.with_call(draw(0.6, 7, 2000, seed), scheduled=7)
        choice = best(costs, counts, longest=7, current=current)
        changes += current is not None and choice.lengths != current.lengths
        current = choice
    assert changes <= 3


def test_a_length_in_force_stays_until_another_is_clearly_better() -> None:
    costs = linear_costs()
    counts = many_counts(0.6)
    fresh = best(costs, counts)
    speedups = predicted_speedups(costs, counts, 7)
    near = tuple(min(k + 1, 7) for k in fresh.lengths)
    kept = best(costs, counts, 7, Choice(BATCHES, near, fresh.speedups))
    for row, k, alternative, chosen in zip(
        speedups, fresh.lengths, near, kept.lengths, strict=True
    ):
        stays = row[alternative] * 1.02 >= row[k] and row[alternative] >= 1.01
        assert chosen == (alternative if stays else k)
    assert kept.lengths != fresh.lengths


def test_acceptance_that_falls_is_followed() -> None:
    counts = AcceptanceCounts()
    for seed in range(5):
        counts = counts.with_call(draw(0.8, 7, 1000, seed), scheduled=7)
    before = best(linear_costs(0.2), counts, 7)
    for seed in range(40):
        counts = counts.with_call(draw(0.05, 7, 1000, seed), scheduled=7)
    after = best(linear_costs(0.2), counts, 7, before)
    assert before.lengths[0] > 0
    assert set(after.lengths) == {0}


def test_positions_that_were_never_drafted_are_guessed_below_those_that_were() -> None:
    counts = AcceptanceCounts().with_call(draw(0.7, 2, 5000, seed=0), scheduled=2)
    steps = np.diff(counts.tokens_per_step(5))
    rates = steps[1:] / steps[:-1]
    assert steps[0] == pytest.approx(0.7, abs=0.02)
    assert rates[0] == pytest.approx(0.7, abs=0.02)
    assert rates[1:] == pytest.approx([0.9 * rates[0], 0.81 * rates[0], 0.729 * rates[0]], rel=0.02)
    assert best(linear_costs(0.0, 0.0), counts).lengths[0] == counts.known + 1 == 3


def test_missing_and_short_drafts_count_as_lost_when_the_length_was_fixed() -> None:
    steps = [[(0, 0), *[(0, 0)] * 900, *[(3, 3)] * 50, *[(1, 1)] * 50, (3, 3)]]
    counts = AcceptanceCounts().with_call(steps, scheduled=3)
    assert (counts.steps, counts.drafted) == (1000, 100)
    assert counts.reached == (100, 100, 50)
    assert counts.accepted == (100, 50, 50)
    assert counts.tokens_per_step(3)[1] < 1.12
    mixed = AcceptanceCounts().with_call(steps, scheduled=None)
    assert (mixed.steps, mixed.drafted) == (0, 0)
    assert mixed.reached == (100, 50, 50)


def test_calls_fade_unless_nothing_was_drafted_since() -> None:
    counts = AcceptanceCounts().with_call(draw(0.5, 3, 1000, seed=1), scheduled=3)
    assert counts.with_call([[(0, 0)] * 50], scheduled=None) == counts
    assert counts.with_call([[(0, 0)] * 50], scheduled=0) == counts
    probed = counts.with_call(draw(0.0, 3, 100, seed=1), scheduled=3, kept=0.5)
    assert probed.reached[0] == 0.5 * counts.reached[0] + 100
    assert probed.accepted[0] == 0.5 * counts.accepted[0]


def test_lengths_between_the_measured_ones_are_interpolated_and_noise_never_makes_them_cheap() -> (
    None
):
    costs = StepCosts((1,), (0, 1, 3), ((1.0, 1.4, 1.2),), (1.0,))
    assert costs.table(3)[0].tolist() == pytest.approx([1.0, 1.3, 1.3, 1.3])
    assert StepCosts((1,), (0, 2), ((1.0, 2.0),), (1.0,)).table(7)[0].tolist() == [1.0, 1.5, 2.0]


def test_lengths_that_could_not_be_measured_are_not_chosen() -> None:
    inf = float("inf")
    costs = StepCosts((1, 2), (0, 1, 3), ((1.0, 1.1, inf), (1.0, inf, inf)), (1.0, 1.0))
    assert choose_lengths(costs, many_counts(0.9), 3, [10, 100]).lengths == (1, 0)


def test_equal_neighbours_become_one_entry_of_the_schedule() -> None:
    choice = Choice((1, 2, 4, 8), (3, 3, 1, 0), (1.0,) * 4)
    assert choice.schedule == ((2, 3), (4, 1), (8, 0))


def test_a_drafter_that_must_keep_up_with_a_full_batch_has_to_pay_for_it_in_the_tail() -> None:
    table = ((0.04, 0.05), (0.42, 2.0))
    costs = StepCosts((1, 32), (0, 3), table, plain=(0.04, 0.40))
    counts = many_counts(0.7)
    short_tail = choose_lengths(costs, counts, 3, [100] * 31 + [110])
    long_tail = choose_lengths(costs, counts, 3, [100] * 31 + [1500])
    assert short_tail.lengths == (0, 0)
    assert short_tail.speedups == (1.0, 1.0)
    assert long_tail.schedule == ((1, 3), (32, 0))
    assert long_tail.speedups[1] == pytest.approx(0.40 / 0.42)


def test_the_speedup_of_a_call_weighs_batches_by_how_long_they_last() -> None:
    costs = StepCosts((1, 2), (0, 1), ((1.0, 1.0), (2.0, 2.0)), plain=(1.0, 2.0))
    counts = many_counts(0.5, longest=1)
    choice = Choice((1, 2), (1, 0), (1.5, 1.0))
    # 10 tokens with two running at 2 s, then 30 alone at 1 s, or at 1.5 tokens a step.
    expected = (10 * 2.0 + 30) / (10 * 2.0 + 20)
    assert call_speedup(costs, counts, choice, [10, 40]) == pytest.approx(expected, rel=1e-3)
