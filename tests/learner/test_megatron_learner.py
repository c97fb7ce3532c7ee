"""The driver half of the learner, on fake actors."""

import threading

import numpy as np
import pytest

from specrl.config.algorithm import AlgorithmConfig
from specrl.config.learner import LearnerConfig
from specrl.errors import ActorDied
from specrl.learner.megatron_learner import MegatronLearner, balanced_shares
from specrl.types import Prompt, Rollout, TokenLogprobs, TrainSample


class FakeFuture:
    def __init__(self, call):
        self.call = call

    def result(self):
        return self.call()


class FakeRank:
    """Log-prob of a token is the token; steps are recorded."""

    def __init__(self, name):
        self.name = name
        self.calls = []
        self.killed = False

    def submit(self, method, *args):
        self.calls.append((method, args))
        return FakeFuture(lambda: getattr(self, method)(*args))

    def kill(self):
        self.killed = True

    def listen(self):
        return "host", 1

    def connect(self, host, port):
        assert (host, port) == ("host", 1)

    def logprobs(self, samples):
        return [TokenLogprobs(np.array(sample.response_ids, np.float32)) for sample in samples]

    def step(self, _minibatches):
        return {"loss": float(self.name[-1])}


def learner_of(ranks, tensor_parallel=1, minibatches=1):
    config = LearnerConfig(
        name="megatron",
        tensor_parallel=tensor_parallel,
        data_parallel=len(ranks) // tensor_parallel,
    )
    return MegatronLearner(ranks, config, AlgorithmConfig(name="grpo", minibatches=minibatches))


def rollout(tokens):
    prompt = Prompt("p", "", (1, 2), {})
    logprobs = np.zeros(len(tokens), np.float32)
    return Rollout(prompt, 0, 0, tuple(tokens), logprobs, "", "length", (0,), None, 0.0)


def sample(length):
    zeros = np.zeros(length, np.float32)
    return TrainSample((1,), (2,) * length, 0.0, zeros, zeros)


def test_shares_balance_tokens():
    sizes = [10, 1, 1, 8, 2, 10]
    shares = balanced_shares(sizes, 2)
    assert sorted(i for share in shares for i in share) == list(range(6))
    assert sorted(sum(sizes[i] for i in share) for share in shares) == [14, 18]


def test_logprobs_come_back_in_the_order_given():
    rollouts = [rollout(range(n, 2 * n)) for n in (5, 1, 9, 3, 2)]
    results = learner_of([FakeRank("r0"), FakeRank("r1")]).logprobs(rollouts)
    assert [tuple(r.policy) for r in results] == [r.token_ids for r in rollouts]


def test_tensor_parallel_ranks_get_the_same_samples():
    ranks = [FakeRank(f"r{i}") for i in range(4)]
    learner_of(ranks, tensor_parallel=2).logprobs([rollout([i]) for i in range(4)])
    sent = [rank.calls[-1][1] for rank in ranks]
    assert sent[0] == sent[1]
    assert sent[2] == sent[3]
    assert sent[0] != sent[2]


def test_a_step_splits_into_consecutive_minibatches_spread_over_copies():
    ranks = [FakeRank("r0"), FakeRank("r1")]
    metrics = learner_of(ranks, minibatches=2).step([sample(n) for n in (1, 2, 3, 4)])
    assert metrics == {"loss": 0.0}
    lengths = [[[len(s.response_ids) for s in part] for part in r.calls[-1][1][0]] for r in ranks]
    assert lengths == [[[2], [4]], [[1], [3]]]


def test_a_dead_rank_is_named_although_another_rank_fails_first():
    ranks = [FakeRank("r0"), FakeRank("r1")]
    learner = learner_of(ranks)
    failed = threading.Event()

    def fails_first(_samples):
        failed.set()
        raise RuntimeError("connection reset by peer")

    def dies(_samples):
        failed.wait()
        raise ActorDied("r1 died")

    ranks[0].logprobs, ranks[1].logprobs = fails_first, dies
    with pytest.raises(ActorDied, match="r1 died"):
        learner.logprobs([rollout([1]), rollout([2])])
