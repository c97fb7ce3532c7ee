"""How generation and training follow one another."""

from dataclasses import dataclass

from omegaconf import MISSING

from specrl.config.bounds import within


@dataclass(kw_only=True)
class ExecutionConfig:
    """sync alternates generation and training: strictly on-policy."""

    name: str = MISSING
    """Name of the execution mode."""

    max_lag: int = 0
    """Publishes by which a rollout's policy may be older than the learner's; 0 is synchronous."""

    def __post_init__(self) -> None:
        within("execution.max_lag", self.max_lag, 0, 0)
