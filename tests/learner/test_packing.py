"""Packing keeps every token once and shares prompts."""

import numpy as np

from specrl.learner.packing import TokenSample, microbatches


def random_samples(seed=0, groups=4, each=3):
    rng = np.random.default_rng(seed)
    samples = []
    for group in range(groups):
        prompt = (1000 + group, *(int(t) for t in rng.integers(0, 50, rng.integers(0, 20))))
        for _ in range(each):
            response = tuple(int(t) for t in rng.integers(0, 50, rng.integers(1, 30)))
            samples.append(TokenSample(prompt, response))
    return samples


def test_every_sample_is_in_one_batch_with_its_targets():
    samples = random_samples()
    seen = {}
    for batch in microbatches(samples, 70):
        for index, rows in zip(batch.samples, batch.slices, strict=True):
            assert index not in seen
            seen[index] = tuple(batch.targets_R[rows])
    assert seen == {i: sample.response_ids for i, sample in enumerate(samples)}


def test_head_rows_hold_the_token_before_each_target():
    samples = random_samples()
    for batch in microbatches(samples, 70):
        for index, rows in zip(batch.samples, batch.slices, strict=True):
            sample = samples[index]
            before = (*sample.prompt_ids, *sample.response_ids)[len(sample.prompt_ids) - 1 : -1]
            assert tuple(batch.token_ids_T[batch.head_rows_R[rows]]) == before
            assert batch.positions_T[batch.head_rows_R[rows][0]] == len(sample.prompt_ids) - 1


def test_batches_stay_within_the_token_bound_and_share_prompts():
    samples = random_samples()
    batches = microbatches(samples, 70)
    assert all(len(batch.token_ids_T) <= 70 for batch in batches)
    for batch in batches:
        starts = [t for t in batch.token_ids_T if t >= 1000]
        assert len(starts) == len(set(starts)) == len(batch.prompt_lengths)


def test_a_sample_longer_than_the_bound_gets_a_batch_of_its_own():
    samples = [TokenSample((1, 2), (3,)), TokenSample((4,), tuple(range(50)))]
    assert [len(batch.samples) for batch in microbatches(samples, 10)] == [1, 1]


def test_slots_and_places_are_inverse():
    for batch in microbatches(random_samples(), 10_000):
        tokens = np.arange(len(batch.token_ids_T))
        assert (batch.slots_S[batch.places_T] == tokens).all()
        assert (~batch.padding_S).sum() == len(tokens)
        assert not batch.padding_S[batch.places_T].any()


def test_nothing_to_predict_gives_no_batches():
    assert microbatches([], 10) == []
    assert microbatches([TokenSample((1, 2), ())], 10) == []
