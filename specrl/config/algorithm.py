"""The policy-gradient objective."""

from dataclasses import dataclass

from omegaconf import MISSING

from specrl.config.bounds import above, at_least, one_of, within


@dataclass(kw_only=True)
class AlgorithmConfig:
    """GRPO (arXiv:2402.03300), asymmetric clip and token-level aggregation (arXiv:2503.14476)."""

    name: str = MISSING
    """Name of the algorithm."""

    advantage: str = "zscore"
    """mean: reward minus group mean; zscore: that, divided by the group's standard deviation."""

    clip_low: float = 0.2
    """The policy ratio is clipped below at 1 - clip_low."""

    clip_high: float = 0.28
    """The policy ratio is clipped above at 1 + clip_high."""

    aggregation: str = "token"
    """token: mean over all response tokens; sequence: mean over responses of their token means."""

    kl_coef: float = 0.0
    """Weight of the KL to the frozen initial policy; 0 builds no reference."""

    truncated_is: float | None = 2.0
    """Cap of the engine-to-learner importance weight per token; null = off."""

    minibatches: int = 1
    """Optimizer steps per batch of rollouts; 1 is strictly on-policy."""

    def __post_init__(self) -> None:
        one_of("algorithm.advantage", self.advantage, ("mean", "zscore"))
        one_of("algorithm.aggregation", self.aggregation, ("token", "sequence"))
        within("algorithm.clip_low", self.clip_low, 0.0, 1.0)
        at_least("algorithm.clip_high", self.clip_high, 0.0)
        at_least("algorithm.kl_coef", self.kl_coef, 0.0)
        at_least("algorithm.minibatches", self.minibatches, 1)
        if self.truncated_is is not None:
            above("algorithm.truncated_is", self.truncated_is, 0.0)
