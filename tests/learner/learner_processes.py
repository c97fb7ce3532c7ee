"""Learner ranks in processes of their own, and toy models, for the tests of this folder."""

import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import transformers

from specrl.config.algorithm import AlgorithmConfig
from specrl.config.learner import LearnerConfig
from specrl.errors import ActorDied
from specrl.learner.layout import world_size
from specrl.learner.megatron_learner import MegatronLearner
from specrl.types import Prompt, Rollout, TrainSample
from tests.warm_process import with_megatron

TOY = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}


class _Future:
    def __init__(self, actor):
        self._actor = actor

    def result(self):
        try:
            ok, value = self._actor.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise ActorDied(f"{self._actor.name} died") from None
        if not ok:
            raise value
        return value


class ProcessActor:
    """`protocols.Actor` over a pipe; results come in the order of the calls."""

    def __init__(self, name, args):
        self.name = name
        self.process = with_megatron().fork("learner_processes:serve", args)
        self.pipe = self.process.connection

    def submit(self, method, *args, **kwargs):
        self.pipe.send((method, args, kwargs))
        return _Future(self)

    def kill(self):
        self.process.kill()


class Probes:
    """What only tests look at, or break, in a `LearnerRank`."""

    def weights(self):
        return {k: v.detach().clone() for k, v in self._policy.named_parameters()}

    def gradients(self):
        return {k: v.main_grad.clone() for k, v in self._policy.named_parameters()}

    def optimizer_state(self):
        """Master weights, Adam moments, and how many updates there were."""
        tensors = {k: v.detach().clone() for k, v in self._optimizer.state().items()}
        return self._optimizer.updates, tensors

    def captured(self):
        return self._draft._tap.batches

    def poison_next_gradient(self, value):
        """One number of the final norm's gradient, in the next backward pass."""

        def poison(gradient):
            handle.remove()
            return gradient.index_fill(0, torch.tensor([0]), value)

        handle = self._policy.decoder.final_layernorm.weight.register_hook(poison)

    def count_forwards(self):
        self.forwards = 0

        def count(_module, _inputs):
            self.forwards += 1

        self._policy.decoder.layers[0].register_forward_pre_hook(count)

    def forwards_so_far(self):
        return self.forwards

    def peak_rss_gib(self):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def die(self):
        os._exit(9)


def serve(pipe, args):
    from specrl.learner.rank import LearnerRank

    class Probed(Probes, LearnerRank):
        pass

    rank = Probed(*args)
    while True:
        method, call_args, kwargs = pipe.recv()
        try:
            pipe.send((True, getattr(rank, method)(*call_args, **kwargs)))
        except Exception as error:
            pipe.send((False, error))


def learner_config(**changes):
    values = {"name": "megatron", "precision": "fp32", "learning_rate": 1e-3, "clip_grad": 0.0}
    return LearnerConfig(**{**values, **changes})


def algorithm_config(**changes):
    return AlgorithmConfig(**{"name": "grpo", "truncated_is": None, **changes})


@contextmanager
def running_learner(
    folder,
    learner=None,
    algorithm=None,
    temperature=1.0,
    top_p=1.0,
    serving="float32",
    draft=None,
):
    learner = learner or learner_config()
    algorithm = algorithm or algorithm_config()
    world = world_size(learner)
    fixed = (str(folder), learner, algorithm, temperature, top_p, serving, 0)
    actors = [
        ProcessActor(f"learner-{rank}", (*fixed, rank, world, draft)) for rank in range(world)
    ]
    try:
        result = MegatronLearner(actors, learner, algorithm)
        result.actors = actors
        yield result
    finally:
        for actor in actors:
            actor.kill()


def build_toy(folder: Path, kind="llama", dtype=torch.float32, **changes):
    """A random model with non-trivial norms, saved to `folder`; returns it in `dtype`."""
    torch.manual_seed(7)
    values = {**TOY, "tie_word_embeddings": False, **changes}
    if kind == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values))
    else:
        values = {"head_dim": 12, **values}
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**values))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.to(dtype).save_pretrained(folder)
    return model


def random_rollouts(prompts=3, samples=3, vocab=100, seed=0, max_response=12):
    rng = np.random.default_rng(seed)
    rollouts = []
    for group in range(prompts):
        ids = tuple(int(t) for t in rng.integers(0, vocab, rng.integers(1, 9)))
        prompt = Prompt(f"toy/{group}", "", ids, {})
        for sample in range(samples):
            length = int(rng.integers(1, max_response + 1))
            response = tuple(int(t) for t in rng.integers(0, vocab, length))
            logprobs = rng.normal(-4, 0.3, length).astype(np.float32)
            rollouts.append(
                Rollout(prompt, group, sample, response, logprobs, "", "length", (0,), None, 0.0)
            )
    return rollouts


def train_samples(rollouts, logprobs, seed=1, rollout_noise=0.0):
    rng = np.random.default_rng(seed)
    return [
        TrainSample(
            rollout.prompt.token_ids,
            rollout.token_ids,
            float(rng.normal()),
            lp.policy + rng.normal(0, 1, len(lp.policy)).astype(np.float32) * rollout_noise,
            lp.policy,
            lp.reference,
        )
        for rollout, lp in zip(rollouts, logprobs, strict=True)
    ]


def hf_logprobs(model, prompt_ids, response_ids, temperature=1.0):
    """Log-probs of the response tokens, with gradient."""
    ids = torch.tensor([[*prompt_ids, *response_ids]])
    logits = model(ids).logits[0, len(prompt_ids) - 1 : -1].float() / temperature
    targets = torch.tensor(response_ids)
    return logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
