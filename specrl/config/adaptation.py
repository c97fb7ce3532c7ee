"""Whether a learned draft follows the policy during RL."""

from dataclasses import dataclass

from omegaconf import MISSING

from specrl.config.bounds import one_of


@dataclass(kw_only=True)
class AdaptationConfig:
    """offline keeps the draft fixed, online trains it on the policy's own forward pass."""

    name: str = MISSING
    """offline or online."""

    def __post_init__(self) -> None:
        one_of("adaptation.name", self.name, ("offline", "online"))
