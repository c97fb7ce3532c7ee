"""What single knobs cannot know: values that exclude one another."""

import os
from dataclasses import fields

from specrl.config.bounds import MOST_ROLLOUTS, one_of, within
from specrl.config.cluster import SlurmConfig
from specrl.config.drafter import DrafterConfig
from specrl.config.node_layout import node_layout
from specrl.config.store import SCHEMAS
from specrl.config.task import ArithmeticConfig
from specrl.config.train import TrainConfig
from specrl.errors import UserError


def check(config: TrainConfig) -> None:
    """Raises `UserError` naming both values and the way out."""
    _names(config)
    _draft_training(config)
    _init_prompts(config)
    _lengths(config)
    _batch(config)
    ranks = config.learner.tensor_parallel * config.learner.data_parallel
    for group, cores, processes, what in (
        ("rollout", config.rollout.cores, config.rollout.replicas, "replicas"),
        ("learner", config.learner.cores, ranks, "ranks"),
    ):
        _cores(group, cores, processes, what)
        if not isinstance(config.cluster, SlurmConfig):  # whose nodes have cores of their own
            _usable(group, cores)
    _one_kind_of_device(config)
    node_layout(config)


def _names(config: TrainConfig) -> None:
    """`name` says which choice this is; only a model's and a cluster's are labels."""
    one_of("drafter.name", config.drafter.name, [_own_name(type(config.drafter))])
    one_of("task.name", config.task.name, [_own_name(type(config.task))])
    one_of("tracking.name", config.tracking.name, [_own_name(type(config.tracking))])
    one_of("execution.name", config.execution.name, ["sync"])
    one_of("algorithm.name", config.algorithm.name, ["grpo"])
    one_of("rollout.name", config.rollout.name, ["vllm"])
    one_of("learner.name", config.learner.name, ["megatron"])


def _own_name(schema: type) -> str:
    """The default of `name`; a choice with a schema of its own has one."""
    return next(str(field.default) for field in fields(schema) if field.name == "name")


def _draft_training(config: TrainConfig) -> None:
    drafters = [schema for schema in SCHEMAS.values() if issubclass(schema, DrafterConfig)]
    can = f"drafters that learn: {', '.join(_own_name(d) for d in drafters if d.learned)}"
    drafter, init = config.drafter, config.init.name
    if drafter.learned:
        if init == "none":
            raise UserError(
                f"drafter={drafter.name} has weights that must come from somewhere, and init=none "
                "says nowhere; use init=dapo, ultrachat, random or checkpoint"
            )
        return
    if config.adaptation.name == "online":
        raise UserError(
            f"adaptation=online cannot go with drafter={drafter.name}, which has no weights that "
            f"specrl trains ({can}); use adaptation=offline"
        )
    if init != "none":
        raise UserError(
            f"init={init} cannot go with drafter={drafter.name}, which has no weights "
            f"that specrl initialises ({can}); leave init out"
        )


def _init_prompts(config: TrainConfig) -> None:
    """How many prompts a task with data of its own has is known only once they are read."""
    init, task = config.init, config.task
    if init.name not in ("dapo", "random") or not isinstance(task, ArithmeticConfig):
        return
    if init.num_prompts > task.train_size:
        raise UserError(
            f"init.num_prompts={init.num_prompts} is more than task.train_size={task.train_size}, "
            "the distinct prompts there are; lower it or raise the other"
        )


def _lengths(config: TrainConfig) -> None:
    rollout, longest = config.rollout, config.model.max_model_len
    if rollout.max_tokens >= longest:
        raise UserError(
            f"rollout.max_tokens={rollout.max_tokens} leaves no room for a prompt; use less than "
            f"model.max_model_len={longest}, or raise that"
        )
    stops = {"stop": rollout.stop, "stop_token_ids": rollout.stop_token_ids}
    for key in (key for key, value in stops.items() if value and rollout.ignore_eos):
        raise UserError(
            f"rollout.ignore_eos=true forces rollout.max_tokens tokens and rollout.{key} ends "
            "responses earlier; use one of the two"
        )


def _batch(config: TrainConfig) -> None:
    rollout, learner = config.rollout, config.learner
    batch = rollout.prompts_per_step * rollout.group_size
    size = "rollout.prompts_per_step x rollout.group_size"
    within(size, batch, 2, MOST_ROLLOUTS)
    sizes = f"{size} = {batch}"
    minibatches = config.algorithm.minibatches
    if minibatches > 1 and not learner.recompute_logprobs:
        raise UserError(
            f"learner.recompute_logprobs=false needs one update per batch, but "
            f"algorithm.minibatches={minibatches}; use learner.recompute_logprobs=true"
        )
    if minibatches > batch:
        raise UserError(
            f"algorithm.minibatches={minibatches} is more than the rollouts of a step ({sizes}); "
            f"use at most {batch}"
        )
    if batch // minibatches < learner.data_parallel:
        raise UserError(
            f"learner.data_parallel={learner.data_parallel} is more than the samples of an "
            f"optimizer step ({sizes}, algorithm.minibatches={minibatches}); "
            f"use at most {batch // minibatches}"
        )


def _cores(group: str, cores: list[int], processes: int, what: str) -> None:
    key = _cores_key(group, cores)
    if not cores:
        return
    if len(set(cores)) < len(cores):
        raise UserError(f"{key} names a core twice; name each once")
    if len(cores) < processes:
        raise UserError(
            f"{key} is fewer cores than {processes} {what} need; name at least {processes}, "
            f"or none with {group}.cores=[]"
        )


def _usable(group: str, cores: list[int]) -> None:
    usable = sorted(os.sched_getaffinity(0))
    wrong = [core for core in cores if core not in usable]
    if wrong:
        raise UserError(
            f"{_cores_key(group, cores)}: core {wrong[0]} is none that this process may use; "
            f"use some of {_written(usable)}"
        )


def _cores_key(group: str, cores: list[int]) -> str:
    return f"{group}.cores=[{','.join(map(str, cores))}]"


def _written(cores: list[int]) -> str:
    first, last = cores[0], cores[-1]
    together = len(cores) > 2 and last - first == len(cores) - 1
    return f"{first} to {last}" if together else ",".join(map(str, cores))


def _one_kind_of_device(config: TrainConfig) -> None:
    engine, rank = config.cluster.gpus_per_engine, config.cluster.gpus_per_learner_rank
    if rank > 1:
        raise UserError(
            f"cluster.gpus_per_learner_rank={rank} is out of range; a rank drives one GPU (1) or "
            "the CPU (0); for more GPUs raise learner.tensor_parallel or learner.data_parallel"
        )
    if (engine == 0) != (rank == 0):
        raise UserError(
            f"cluster.gpus_per_engine={engine} and cluster.gpus_per_learner_rank={rank} mix CPU "
            "and GPU; use cluster=local (both 0) or cluster=local_gpu (both 1)"
        )
