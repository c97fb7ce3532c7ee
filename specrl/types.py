"""Frozen records that travel between the nouns; no behaviour beyond derived figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Prompt:
    """One question, already formatted and tokenised for the policy.

    `id` is stable across runs ("arithmetic/train/17"); `reference` is what the task's reward needs
    to score a response (JSON-serialisable).
    """

    id: str
    text: str
    token_ids: tuple[int, ...]
    reference: Mapping[str, object]


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. Temperature 0 is greedy; top_p 1 keeps the whole vocabulary.

    `stop_token_ids` end a response in addition to the model's own EOS; the stop token is part of
    the response. `ignore_eos` forces `max_tokens` tokens (benchmarks). `seed` restarts the engine's
    sampler at the call, so that a resumed step draws the same responses; None lets it run on.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None


@dataclass(frozen=True)
class SpecStats:
    """Speculation counts of one rollout, or a sum of several (vLLM's words).

    num_drafts counts verification steps that had at least one draft token. `num_draft_tokens[i]`
    and `num_accepted_tokens[i]` count position i of the draft. `num_decode_steps` counts engine
    steps that produced tokens of the response (drafted or not); `num_tokens` the response tokens
    they produced.
    """

    num_drafts: int = 0
    num_draft_tokens: tuple[int, ...] = ()
    num_accepted_tokens: tuple[int, ...] = ()
    num_decode_steps: int = 0
    num_tokens: int = 0


@dataclass(frozen=True)
class Rollout:
    """One response of the engine to one prompt.

    `rollout_logprobs[t]` is the engine's log-probability of `token_ids[t]` under the distribution
    it sampled from (temperature and top_p applied). `versions` are the policy versions that
    produced it, in order, one entry when no publish happened in between. `group` counts prompts
    of the batch, `sample` the responses of a group. `spec` is None when speculation is off.
    `draft_steps` are (drafted, accepted) of each engine step that gave tokens, in order, with
    those cut off at the end not counted; a step gives accepted + 1 tokens. Empty as `spec` is None.
    """

    prompt: Prompt
    group: int
    sample: int
    token_ids: tuple[int, ...]
    rollout_logprobs: Float32
    text: str
    finish_reason: FinishReason
    versions: tuple[int, ...]
    spec: SpecStats | None
    latency_s: float
    draft_steps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TokenLogprobs:
    """The learner's log-probs of one rollout's response tokens [T], and its entropies in nats.

    `policy` and `entropy` are None when the update's own forward pass gives them, `reference`
    without a KL term.
    """

    policy: Float32 | None
    reference: Float32 | None = None
    entropy: Float32 | None = None


@dataclass(frozen=True)
class TrainSample:
    """What the policy update needs of one rollout; arrays have the length of `response_ids`.

    `policy_logprobs` None: those of the update's own forward pass.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    advantage: float
    rollout_logprobs: Float32
    policy_logprobs: Float32 | None
    reference_logprobs: Float32 | None = None


@dataclass(frozen=True)
class DraftWeights:
    """A learned draft's tensors, a safetensors file with the names vLLM loads; see `checksums`."""

    path: Path
    checksums: Mapping[str, str]


@dataclass(frozen=True)
class WeightSnapshot:
    """Weights of one version, written by the learner and not yet live.

    `path` is a safetensors file with Hugging Face names; `checksums` maps each name to the
    xxh3-64 hex digest of its bytes. `draft` goes live with the policy or not at all.
    """

    version: int
    path: Path
    checksums: Mapping[str, str]
    draft: DraftWeights | None = None


@dataclass(frozen=True)
class GenerationProgress:
    """A moment of a running `generate` call."""

    finished: int
    total: int
    tokens: int
    elapsed_s: float
    acceptance_length: float | None


@dataclass(frozen=True)
class Placement:
    """What an actor needs from the machine. `cores` are CPU ids to bind to, empty = not bound.

    `node` counts the nodes of an allocation; on this machine there is only 0.
    """

    cores: tuple[int, ...] = ()
    num_gpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    node: int = 0


@dataclass(frozen=True)
class DraftSetup:
    """The learned draft that a learner process holds.

    `target` is its `hidden_states.DraftTrainer` as "package.module:Class", called with `folder`
    (its first weights, a Hugging Face folder) and `config` (the drafter's). Every `every`-th RL
    step fills the cache for `step_draft`, with at most `tokens` response tokens per data-parallel
    rank (None: all of the step's); 0 never does. `loss` None is the drafter's own.
    """

    target: str
    folder: Path
    config: Any
    every: int = 0
    tokens: int | None = None
    learning_rate: float = 0.0
    passes: int = 1
    loss: str | None = None


Metrics = Mapping[str, float]
Rewards = Sequence[float]
