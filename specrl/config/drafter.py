"""What the rollout engine drafts with."""

from dataclasses import dataclass
from typing import ClassVar

from omegaconf import MISSING

from specrl.config.bounds import at_least, not_empty, within
from specrl.errors import UserError

MAX_K = 16


@dataclass(kw_only=True)
class DrafterConfig:
    """What every drafter has, so that sweeps over drafters and k compose."""

    name: str = MISSING
    """Name of the drafter, used in run folders and tables."""

    k: int = 3
    """Draft length: tokens proposed per verification step (ignored by drafter=none)."""

    learned: ClassVar[bool] = False  # True: specrl itself initialises and trains the draft

    def __post_init__(self) -> None:
        within("drafter.k", self.k, 1, MAX_K)


@dataclass(kw_only=True)
class NoDrafterConfig(DrafterConfig):
    """Autoregressive decoding, the baseline."""

    name: str = "none"
    """Name of the drafter."""


@dataclass(kw_only=True)
class NgramConfig(DrafterConfig):
    """Prompt lookup: proposes what followed the last n tokens earlier in the same sequence."""

    name: str = "ngram"
    """Name of the drafter."""

    lookup_min: int = 2
    """Shortest n-gram looked up, in tokens."""

    lookup_max: int = 4
    """Longest n-gram looked up, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("drafter.lookup_min", self.lookup_min, 1)
        if self.lookup_max < self.lookup_min:
            raise UserError(
                f"drafter.lookup_max={self.lookup_max} is below "
                f"drafter.lookup_min={self.lookup_min}; raise it or lower the other"
            )


@dataclass(kw_only=True)
class DraftModelConfig(DrafterConfig):
    """A smaller model with the policy's tokeniser drafts; its weights stay as they are."""

    name: str = "draft_model"
    """Name of the drafter."""

    model: str = MISSING
    """Hugging Face folder or hub id of the draft; its vocabulary must equal the policy's."""

    revision: str | None = None
    """Hub revision of the draft; null takes the default branch."""

    probabilistic: bool = True
    """True samples the draft at the rollout temperature, False drafts greedily; both are exact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_empty("drafter.model", self.model)
