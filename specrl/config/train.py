"""The whole config of one training run."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from specrl.config.adaptation import AdaptationConfig
from specrl.config.algorithm import AlgorithmConfig
from specrl.config.bounds import at_least, expandable, not_empty, seed
from specrl.config.cluster import ClusterConfig
from specrl.config.drafter import DrafterConfig
from specrl.config.execution import ExecutionConfig
from specrl.config.init import InitConfig
from specrl.config.learner import LearnerConfig
from specrl.config.model import ModelConfig
from specrl.config.rollout import RolloutConfig
from specrl.config.task import TaskConfig
from specrl.config.tracking import TrackingConfig


@dataclass(kw_only=True)
class EvaluationConfig:
    """Validation with the same engine."""

    every: int = 10
    """Steps between evaluations, the start and the last step included; 0 = never."""

    num_prompts: int = 64
    """Validation prompts."""

    samples: int = 4
    """Responses per prompt; pass@1 is their mean."""

    def __post_init__(self) -> None:
        at_least("evaluation.every", self.every, 0)
        at_least("evaluation.num_prompts", self.num_prompts, 1)
        at_least("evaluation.samples", self.samples, 1)


@dataclass(kw_only=True)
class CheckpointConfig:
    """Checkpoints in the run folder; the same command goes on from the newest intact one."""

    every: int = 10
    """Steps between checkpoints; the last step and an interruption save too. 0 = only those."""

    keep: int = 2
    """Newest checkpoints kept."""

    def __post_init__(self) -> None:
        at_least("checkpoint.every", self.every, 0)
        at_least("checkpoint.keep", self.keep, 1)


@dataclass(kw_only=True)
class TrainConfig:
    """One run: the choices of every group plus how long and where."""

    model: ModelConfig = MISSING
    drafter: DrafterConfig = MISSING
    init: InitConfig = MISSING
    adaptation: AdaptationConfig = MISSING
    execution: ExecutionConfig = MISSING
    task: TaskConfig = MISSING
    algorithm: AlgorithmConfig = MISSING
    rollout: RolloutConfig = MISSING
    learner: LearnerConfig = MISSING
    cluster: ClusterConfig = MISSING
    tracking: TrackingConfig = MISSING
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    name: str = "train"
    """What the run is for; an experiment sets it."""

    seed: int = 0
    """Seed of the learner; task.seed and rollout.seed follow it unless they are set."""

    steps: int = 100
    """RL steps in all; a larger value on rerun goes on from the last checkpoint."""

    output_dir: str = "outputs"
    """Folder that holds the run folders."""

    rerun: bool = False
    """True starts again from step 0 although the run folder has checkpoints."""

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        seed("seed", self.seed)
        not_empty("output_dir", self.output_dir)
        expandable("output_dir", self.output_dir)
