"""Whether a learned draft follows the policy during RL."""

from dataclasses import dataclass

from omegaconf import MISSING

from specrl.config.bounds import above, at_least, one_of
from specrl.config.drafter import DRAFT_LOSSES


@dataclass(kw_only=True)
class AdaptationConfig:
    """offline keeps the draft fixed, online trains it on the policy's own forward pass."""

    name: str = MISSING
    """offline or online."""

    every: int = 1
    """RL steps from one training of the draft to the next."""

    tokens: int | None = None
    """Response tokens of a step that the draft trains on, per data-parallel rank; null = all."""

    passes: int = 1
    """Passes over the hidden states of a step."""

    learning_rate: float = 1.0e-4
    """Learning rate of the draft during RL, constant."""

    loss: str = "tv"
    """Of the draft during RL, as drafter.training.loss: tv goes on where a fitted draft stopped."""

    def __post_init__(self) -> None:
        one_of("adaptation.name", self.name, ("offline", "online"))
        at_least("adaptation.every", self.every, 1)
        at_least("adaptation.passes", self.passes, 1)
        above("adaptation.learning_rate", self.learning_rate, 0.0)
        one_of("adaptation.loss", self.loss, DRAFT_LOSSES)
        if self.tokens is not None:
            at_least("adaptation.tokens", self.tokens, 1)
