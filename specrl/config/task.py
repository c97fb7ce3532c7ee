"""Prompts and rewards."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from specrl.config.bounds import above, at_least, expandable, one_of, seed
from specrl.errors import UserError


@dataclass(kw_only=True)
class TaskConfig:
    """What every task has."""

    name: str = MISSING
    """Name of the task, used in run folders and tables."""

    prompt_style: str = "chat"
    """chat: the model's chat template (RL-Think); raw: plain completion (RL-Zero)."""

    instruction: str = ""
    """Text put after the question, e.g. how to mark the final answer."""

    seed: int = 0
    """Seed of generators and of the order of training prompts."""

    def __post_init__(self) -> None:
        one_of("task.prompt_style", self.prompt_style, ("chat", "raw"))
        seed("task.seed", self.seed)


@dataclass(kw_only=True)
class ArithmeticConfig(TaskConfig):
    """reasoning-gym generators and scorers, made on the fly: needs no data."""

    name: str = "arithmetic"
    """Name of the task."""

    generators: list[str] = field(default_factory=lambda: ["chain_sum"])
    """reasoning-gym dataset names, mixed evenly."""

    difficulty: int = 1
    """1 is easiest; sets digits and number of terms where the generator has them."""

    generator_args: dict[str, Any] = field(default_factory=dict)
    """reasoning-gym config values over those of difficulty, e.g. {max_terms: 2}."""

    train_size: int = 10_000
    """Distinct training prompts."""

    validation_size: int = 500
    """Distinct validation prompts, disjoint from training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.generators:
            raise UserError("task.generators=[] is empty; name at least one, e.g. [chain_sum]")
        at_least("task.difficulty", self.difficulty, 1)
        at_least("task.train_size", self.train_size, 1)
        at_least("task.validation_size", self.validation_size, 1)


@dataclass(kw_only=True)
class MathDataConfig(TaskConfig):
    """Questions with a reference answer from a hub data set or a local file."""

    train_data: str = MISSING
    """Hub data set (owner/name[@revision][:folder]), or a local .parquet / .jsonl file."""

    validation_data: str = MISSING
    """Hub data set (owner/name[@revision][:folder]), or a local .parquet / .jsonl file."""

    question_field: str = "prompt"
    """Column of the question (a string, or a chat list whose last user turn counts)."""

    answer_field: str = "answer"
    """Column of the reference answer; dots go into nested columns."""

    train_split: str = "train"
    """Split of a hub data set used for training."""

    validation_split: str = "train"
    """Split of a hub data set used for validation."""

    reward_timeout_s: float = 5.0
    """Seconds after which the scoring of one response is given up as wrong."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above("task.reward_timeout_s", self.reward_timeout_s, 0)
        expandable("task.train_data", self.train_data)
        expandable("task.validation_data", self.validation_data)


@dataclass(kw_only=True)
class DapoMathConfig(MathDataConfig):
    """DAPO-Math-17K for training, AIME-2024 for validation, scored by math-verify."""

    name: str = "dapo_math"
    """Name of the task."""


@dataclass(kw_only=True)
class Gsm8kConfig(MathDataConfig):
    """Grade-school word problems, scored by the final number."""

    name: str = "gsm8k"
    """Name of the task."""
