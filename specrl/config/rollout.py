"""What is sampled each step, and the engine that samples it."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from specrl.config.bounds import above, at_least, one_of, processes, seed, within
from specrl.errors import UserError

OWNED_ENGINE_ARGS = (
    "dtype",
    "logprobs_mode",
    "max_model_len",
    "model",
    "per_request_spec_decode_metrics",
    "seed",
    "speculative_config",
    "use_tqdm_on_load",
    "worker_extension_cls",
)


@dataclass(kw_only=True)
class RolloutConfig:
    """vLLM as the rollout engine."""

    name: str = MISSING
    """Name of the engine."""

    prompts_per_step: int = 8
    """Distinct prompts of one RL step."""

    group_size: int = 8
    """Responses per prompt (the GRPO group)."""

    temperature: float = 1.0
    """Sampling temperature; must be above 0 for training."""

    top_p: float = 1.0
    """Nucleus sampling mass; 1 keeps the whole vocabulary."""

    max_tokens: int = 256
    """Longest response, in tokens."""

    stop: list[str] = field(default_factory=list)
    """Strings that end a response."""

    stop_token_ids: list[int] = field(default_factory=list)
    """Token ids that end a response, besides the model's own EOS."""

    ignore_eos: bool = False
    """True forces max_tokens tokens from every response (benchmarks)."""

    replicas: int = 1
    """Engine processes; prompts are spread over them."""

    dtype: str = "bfloat16"
    """Serving precision: bfloat16 or float32."""

    cores: list[int] = field(default_factory=list)
    """CPU ids for the engine's threads, split over replicas; empty = all."""

    seed: int = 0
    """Seed of the engine's sampler."""

    engine_args: dict[str, Any] = field(default_factory=dict)
    """vLLM engine arguments, passed through as they are, e.g. {max_num_seqs: 64}."""

    def __post_init__(self) -> None:
        at_least("rollout.prompts_per_step", self.prompts_per_step, 1)
        at_least("rollout.group_size", self.group_size, 2)
        above("rollout.temperature", self.temperature, 0.0)
        within("rollout.top_p", self.top_p, 0.0, 1.0)
        above("rollout.top_p", self.top_p, 0.0)
        at_least("rollout.max_tokens", self.max_tokens, 1)
        processes("rollout.replicas", self.replicas)
        one_of("rollout.dtype", self.dtype, ("bfloat16", "float32"))
        seed("rollout.seed", self.seed)
        self._check_stops()
        taken = sorted(set(OWNED_ENGINE_ARGS) & set(self.engine_args))
        if taken:
            raise UserError(
                f"rollout.engine_args.{taken[0]} is set by specrl itself; leave it out, "
                "or use model.*, rollout.dtype, rollout.seed or drafter.* instead"
            )

    def _check_stops(self) -> None:
        for text in self.stop:
            if not text:
                raise UserError(
                    f"rollout.stop={self.stop} has an empty string, which ends nothing; leave it "
                    "out, or use rollout.stop=[] for none"
                )
        for token in self.stop_token_ids:
            at_least("rollout.stop_token_ids", token, 0)
