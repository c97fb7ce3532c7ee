"""The Megatron-core learner."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from specrl.config.bounds import above, at_least, from_to_below, one_of, processes


@dataclass(kw_only=True)
class LearnerConfig:
    """Parallel layout, precision and optimizer (AdamW)."""

    name: str = MISSING
    """Name of the learner."""

    tensor_parallel: int = 1
    """Ranks that share one copy of the weights (must divide attention and key/value heads)."""

    data_parallel: int = 1
    """Copies of the weights; samples are spread over them."""

    precision: str = "bf16"
    """bf16: bf16 weights with fp32 master weights; fp32: everything in fp32."""

    learning_rate: float = 1e-6
    """Peak learning rate of AdamW."""

    warmup_steps: int = 0
    """Optimizer steps of linear warm-up."""

    decay_steps: int = 0
    """Optimizer steps after it in which the rate falls linearly to a tenth; 0 = constant."""

    weight_decay: float = 0.0
    """AdamW weight decay (not on norms and biases)."""

    beta1: float = 0.9
    """AdamW beta1."""

    beta2: float = 0.95
    """AdamW beta2."""

    eps: float = 1e-8
    """AdamW epsilon."""

    clip_grad: float = 1.0
    """Global gradient norm above which gradients are scaled down; 0 = off."""

    recompute_logprobs: bool = True
    """True: a forward pass before the update gives the log-probs; False: the update's own does."""

    tokens_per_microbatch: int = 1024
    """Packed tokens of one forward and backward pass, per data-parallel rank."""

    logits_chunk_tokens: int = 512
    """Tokens whose logits (model's dtype; fp32 a few rows at a time) are in memory at once."""

    recompute: bool = False
    """True recomputes layer activations in the backward pass (less memory, more time)."""

    cores: list[int] = field(default_factory=list)
    """CPU ids for the learner's threads, split over ranks; empty = all."""

    def __post_init__(self) -> None:
        at_least("learner.tensor_parallel", self.tensor_parallel, 1)
        at_least("learner.data_parallel", self.data_parallel, 1)
        ranks = self.tensor_parallel * self.data_parallel
        processes("learner.tensor_parallel x learner.data_parallel", ranks)
        one_of("learner.precision", self.precision, ("bf16", "fp32"))
        above("learner.learning_rate", self.learning_rate, 0.0)
        at_least("learner.warmup_steps", self.warmup_steps, 0)
        at_least("learner.decay_steps", self.decay_steps, 0)
        at_least("learner.weight_decay", self.weight_decay, 0.0)
        from_to_below("learner.beta1", self.beta1, 0.0, 1.0)
        from_to_below("learner.beta2", self.beta2, 0.0, 1.0)
        above("learner.eps", self.eps, 0.0)
        at_least("learner.clip_grad", self.clip_grad, 0.0)
        at_least("learner.tokens_per_microbatch", self.tokens_per_microbatch, 1)
        at_least("learner.logits_chunk_tokens", self.logits_chunk_tokens, 1)
