"""Registers the schemas with Hydra, in groups of their own so that they stay out of listings."""

from functools import cache

from hydra.core.config_store import ConfigStore

from specrl.config.adaptation import AdaptationConfig
from specrl.config.algorithm import AlgorithmConfig
from specrl.config.cluster import ClusterConfig, SlurmConfig
from specrl.config.drafter import DraftModelConfig, Eagle3Config, NgramConfig, NoDrafterConfig
from specrl.config.execution import ExecutionConfig
from specrl.config.init import InitConfig
from specrl.config.learner import LearnerConfig
from specrl.config.model import ModelConfig
from specrl.config.rollout import RolloutConfig
from specrl.config.task import ArithmeticConfig, DapoMathConfig, Gsm8kConfig
from specrl.config.tracking import MlflowConfig, TrackingConfig
from specrl.config.train import TrainConfig

SCHEMAS: dict[str, type] = {
    "schema/train": TrainConfig,
    "schema/model": ModelConfig,
    "schema/drafter/none": NoDrafterConfig,
    "schema/drafter/ngram": NgramConfig,
    "schema/drafter/draft_model": DraftModelConfig,
    "schema/drafter/eagle3": Eagle3Config,
    "schema/init": InitConfig,
    "schema/adaptation": AdaptationConfig,
    "schema/execution": ExecutionConfig,
    "schema/task/arithmetic": ArithmeticConfig,
    "schema/task/dapo_math": DapoMathConfig,
    "schema/task/gsm8k": Gsm8kConfig,
    "schema/algorithm": AlgorithmConfig,
    "schema/rollout": RolloutConfig,
    "schema/learner": LearnerConfig,
    "schema/cluster/local": ClusterConfig,
    "schema/cluster/slurm": SlurmConfig,
    "schema/tracking/none": TrackingConfig,
    "schema/tracking/mlflow": MlflowConfig,
}


@cache
def register() -> None:
    """Makes every schema known as `/schema/...`; does nothing when called again."""
    store = ConfigStore.instance()
    for path, schema in SCHEMAS.items():
        group, name = path.rsplit("/", 1)
        store.store(group=group, name=name, node=schema, provider="specrl")
