"""A short supervised pass that a model starts with."""

from dataclasses import dataclass, field
from typing import Any

from specrl.config.bounds import above, at_least, one_of, seed
from specrl.errors import UserError


@dataclass(kw_only=True)
class WarmStartConfig:
    """Worked solutions of arithmetic questions, trained on once; the result is a cached model."""

    generators: list[str] = field(default_factory=lambda: ["chain_sum"])
    """reasoning-gym dataset names whose questions are solved, mixed evenly."""

    difficulty: int = 1
    """1 is easiest; as in task=arithmetic."""

    generator_args: dict[str, Any] = field(default_factory=dict)
    """reasoning-gym config values over those of difficulty, e.g. {max_terms: 2}."""

    prompt_style: str = "chat"
    """chat: the model's chat template; raw: plain completion."""

    instruction: str = ""
    """Text put after the question, as in task.instruction."""

    examples: int = 640
    """Distinct worked solutions; none is of a question that any run validates with."""

    passes: int = 1
    """Passes over the solutions."""

    batch_examples: int = 16
    """Solutions of one optimizer step."""

    learning_rate: float = 3.0e-4
    """Peak learning rate of AdamW; it falls linearly to a tenth after the warm-up."""

    warmup_steps: int = 8
    """Optimizer steps of linear warm-up."""

    seed: int = 0
    """Seed of the questions and of their order."""

    validation_prompts: int = 64
    """Held-out questions that accuracy and entropy are measured on, before and after."""

    samples: int = 2
    """Responses to each of them, at temperature 1."""

    max_tokens: int = 160
    """Longest of those responses, in tokens."""

    def __post_init__(self) -> None:
        if not self.generators:
            raise UserError(
                "model.warm_start.generators=[] is empty; name at least one, e.g. [chain_sum]"
            )
        one_of("model.warm_start.prompt_style", self.prompt_style, ("chat", "raw"))
        seed("model.warm_start.seed", self.seed)
        above("model.warm_start.learning_rate", self.learning_rate, 0.0)
        at_least("model.warm_start.warmup_steps", self.warmup_steps, 0)
        counts = ("difficulty", "examples", "passes", "batch_examples", "samples", "max_tokens")
        for name in (*counts, "validation_prompts"):
            at_least(f"model.warm_start.{name}", getattr(self, name), 1)
