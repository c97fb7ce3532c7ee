"""What the rollout engine drafts with."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from omegaconf import MISSING

from specrl.config.bounds import (
    above,
    at_least,
    expandable,
    from_to_below,
    not_empty,
    one_of,
    within,
)
from specrl.errors import UserError

MAX_K = 16
AUTO = "auto"
AUTO_MAX_K = 7  # the longest draft the paper measures (arXiv:2604.26779, Table 4)
SAMPLING = ("probabilistic", "greedy")
VERIFICATION = ("standard", "block")
DRAFT_LOSSES = ("soft_ce", "tv", "hard_ce")


@dataclass(kw_only=True)
class DrafterConfig:
    """What every drafter has, so that sweeps over drafters and k compose."""

    name: str = MISSING
    """Name of the drafter, used in run folders and tables."""

    k: Any = 3
    """Tokens drafted per step; auto: the best by batch size, measured (seeds repeat roughly)."""

    remeasure: bool = False
    """With k=auto: measures step costs anew, though kept (if the machine was busy at the time)."""

    learned: ClassVar[bool] = False  # True: specrl itself initialises and trains the draft

    @property
    def longest_k(self) -> int:
        """The longest draft that the engine must be able to propose."""
        return AUTO_MAX_K if self.k == AUTO else int(self.k)

    def __post_init__(self) -> None:
        if self.k == AUTO:
            return
        if type(self.k) is not int:
            given = "null" if self.k is None else self.k
            raise UserError(
                f"drafter.k={given} is not allowed; use a whole number from 1 to {MAX_K}, or auto"
            )
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

    sampling: str = "probabilistic"
    """probabilistic samples the draft at the rollout temperature, greedy does not; both exact."""

    verification: str = "standard"
    """standard: token by token (arXiv:2211.17192), block: jointly (arXiv:2403.10444), exact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_empty("drafter.model", self.model)
        expandable("drafter.model", self.model)
        _check_modes(self.sampling, self.verification)


@dataclass(kw_only=True)
class DraftTrainingConfig:
    """How a learned draft is fitted to the policy, before RL and during it."""

    loss: str = "soft_ce"
    """soft_ce: against the policy's distribution; tv: 1 - acceptance; hard_ce: against tokens."""

    ttt_steps: int = 3
    """Draft steps unrolled in training (training-time test, arXiv:2503.01840); 1 = single pass."""

    ttt_decay: float = 0.8
    """Weight of each further draft step, relative to the one before it."""

    tokens_per_update: int = 256
    """Response tokens of one optimizer step of the draft, per data-parallel rank."""

    precision: str = "bf16"
    """bf16: products in bf16 with fp32 weights; fp32: everything in fp32."""

    weight_decay: float = 0.0
    """AdamW weight decay (not on norms)."""

    beta1: float = 0.9
    """AdamW beta1."""

    beta2: float = 0.95
    """AdamW beta2."""

    clip_grad: float = 0.5
    """Gradient norm of the draft above which its gradients are scaled down; 0 = off."""

    def __post_init__(self) -> None:
        one_of("drafter.training.loss", self.loss, DRAFT_LOSSES)
        within("drafter.training.ttt_steps", self.ttt_steps, 1, MAX_K)
        above("drafter.training.ttt_decay", self.ttt_decay, 0.0)
        at_least("drafter.training.tokens_per_update", self.tokens_per_update, 1)
        one_of("drafter.training.precision", self.precision, ("bf16", "fp32"))
        at_least("drafter.training.weight_decay", self.weight_decay, 0.0)
        from_to_below("drafter.training.beta1", self.beta1, 0.0, 1.0)
        from_to_below("drafter.training.beta2", self.beta2, 0.0, 1.0)
        at_least("drafter.training.clip_grad", self.clip_grad, 0.0)


@dataclass(kw_only=True)
class DraftHealthConfig:
    """When a draft counts as collapsed, by its acceptance at position 0."""

    floor: float = 0.1
    """Acceptance below which a draft that was trained does not fit its policy; 0 = off."""

    window: int = 8
    """Generate calls whose acceptance a new one is compared with."""

    drop: float = 0.5
    """Share of the window's mean below which acceptance has collapsed; 0 = off."""

    min_drafts: int = 200
    """Drafts that a verdict needs; fewer are added up over calls."""

    def __post_init__(self) -> None:
        from_to_below("drafter.health.floor", self.floor, 0.0, 1.0)
        at_least("drafter.health.window", self.window, 1)
        from_to_below("drafter.health.drop", self.drop, 0.0, 1.0)
        at_least("drafter.health.min_drafts", self.min_drafts, 1)


@dataclass(kw_only=True)
class Eagle3Config(DrafterConfig):
    """A one-layer draft over the policy's hidden states (EAGLE-3, arXiv:2503.01840)."""

    name: str = "eagle3"
    """Name of the drafter."""

    learned: ClassVar[bool] = True

    sampling: str = "probabilistic"
    """probabilistic samples the draft at the rollout temperature, greedy does not; both exact."""

    verification: str = "standard"
    """standard: token by token (arXiv:2211.17192), block: jointly (arXiv:2403.10444), exact."""

    vocab_size: int | None = 4096
    """Most tokens it can propose, the frequent ones; null = all; init=checkpoint has its own."""

    aux_layers: list[int] = field(default_factory=list)
    """Layers whose output the draft sees, three of 0..L; empty = 2, L/2, L-3 (spread if L < 9)."""

    on_collapse: str = "warn"
    """When acceptance collapses: fail the run, warn, or disable (decode autoregressively)."""

    health: DraftHealthConfig = field(default_factory=DraftHealthConfig)
    training: DraftTrainingConfig = field(default_factory=DraftTrainingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_modes(self.sampling, self.verification)
        if self.vocab_size is not None:
            at_least("drafter.vocab_size", self.vocab_size, 2)
        one_of("drafter.on_collapse", self.on_collapse, ("fail", "warn", "disable"))
        layers = self.aux_layers
        if layers and (len(set(layers)) != 3 or sorted(layers) != layers or layers[0] < 0):
            raise UserError(
                f"drafter.aux_layers={layers} must be three different layers in ascending order, "
                "e.g. [2,15,27], or [] for the usual ones"
            )


def _check_modes(sampling: str, verification: str) -> None:
    one_of("drafter.sampling", sampling, SAMPLING)
    one_of("drafter.verification", verification, VERIFICATION)
    if verification == "block" and sampling == "greedy":
        raise UserError(
            "drafter.verification=block weighs draft probabilities, which drafter.sampling=greedy "
            "has none of; use drafter.sampling=probabilistic"
        )
