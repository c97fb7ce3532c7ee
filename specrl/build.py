"""Configs become objects; the only file that knows every class."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from specrl.checkpoint import CheckpointStore, RunState
from specrl.cluster.local_ray import LocalRay
from specrl.config.drafter import DraftModelConfig, NgramConfig, NoDrafterConfig
from specrl.config.signature import signature
from specrl.config.task import ArithmeticConfig, DapoMathConfig, Gsm8kConfig, TaskConfig
from specrl.config.tracking import MlflowConfig
from specrl.config.train import TrainConfig
from specrl.drafter import DraftModelDrafter, NgramDrafter, NoDrafter
from specrl.errors import UserError
from specrl.evaluate import EvaluationPlan
from specrl.learner.layout import check_layout, rank_placements
from specrl.learner.megatron_learner import MegatronLearner
from specrl.loop import Parts, Plan, train
from specrl.models.prepare import prepare_draft, prepare_model
from specrl.models.prompt_format import PromptFormat, load_tokenizer
from specrl.protocols import Actor, Cluster, Drafter, Learner, RolloutEngine, Task
from specrl.rollout.environment import engine_environment, split_cores, usable_cores
from specrl.rollout.settings import replica_settings
from specrl.rollout.vllm_engine import VllmEngine
from specrl.run_folder import exclusive, logging_to
from specrl.tasks.arithmetic import Arithmetic
from specrl.tasks.dapo_math import DapoMath
from specrl.tasks.gsm8k import Gsm8k
from specrl.telemetry.console import ConsoleSink
from specrl.telemetry.jsonl import METRICS_FILE, JsonlSink, read_info
from specrl.telemetry.mlflow_run import ui_command
from specrl.telemetry.mlflow_sink import MlflowSink
from specrl.telemetry.recorder import Recorder
from specrl.telemetry.sink import Sink
from specrl.types import Placement, Sampling
from specrl.weight_sync.shared_memory import SharedMemorySync

logger = logging.getLogger(__name__)

PROMPTS_CHECKED = 64  # for room in model.max_model_len, before anything starts


def run(config: TrainConfig, run_folder: Path, overrides: Sequence[str]) -> None:
    """Trains from the newest checkpoint in `run_folder`, or from step 0, to `config.steps`.

    Raises `UserError` for what the config asks and this machine or its files cannot give, and
    `RunError` when the run failed on the way; `run.log` in the folder has the traceback. A run that
    a signal ended has saved its steps and raises KeyboardInterrupt.
    """
    with exclusive(run_folder), logging_to(run_folder / "run.log"):
        try:
            _run(config, run_folder, overrides)
        except Exception:
            logger.exception("the run failed")
            raise


def _run(config: TrainConfig, run_folder: Path, overrides: Sequence[str]) -> None:
    console = ConsoleSink(run_folder, total_steps=config.steps, ui=_ui_command(config))
    warn = _warning(console)
    checkpoints = CheckpointStore(run_folder / "checkpoints", config.checkpoint.keep, warn=warn)
    found = None if config.rerun else checkpoints.newest()
    state, checkpoint = found or (RunState(config=signature(config)), None)
    if state.config != signature(config):
        raise UserError(
            f"{checkpoint} belongs to another config (signature {state.config}, this one is "
            f"{signature(config)}); remove it, or use rerun=true"
        )
    info = read_info(run_folder)
    if state.step >= config.steps and info is not None and info.status == "finished":
        console.note(f"{run_folder}: {state.step} steps are done already; rerun=true starts again")
        return
    model = prepare_model(config.model, lambda folder: check_layout(folder, config.learner))
    drafter = build_drafter(config, model)
    task = build_task(config, model)
    sinks = build_sinks(config, run_folder, overrides, state, console)
    with _recording(sinks, config.steps) as recording, ExitStack() as stack:
        stack.enter_context(closing(task))
        recording.telemetry.note("starting the engine and the learner")
        cluster = stack.enter_context(closing(build_cluster(config, run_folder)))
        engine, learner = build_engine_and_learner(config, model, drafter, cluster, stack)
        weight_sync = SharedMemorySync(learner, engine, weight_bytes(model))
        stack.enter_context(closing(weight_sync))
        parts = Parts(task, engine, learner, weight_sync, recording.telemetry, checkpoints)
        if config.rerun:
            checkpoints.clear()
        if checkpoint is not None:
            parts.learner.load(checkpoint)
            recording.telemetry.note(f"going on from {checkpoint}")
        recording.state = train(parts, build_plan(config), state)
    if recording.state.step < config.steps:
        raise KeyboardInterrupt


@dataclass
class _Recording:
    telemetry: Recorder
    state: RunState


@contextmanager
def _recording(sinks: Sequence[Sink], steps: int) -> Iterator[_Recording]:
    """Telemetry that is told how the run ended, however it ends."""
    recording = _Recording(Recorder(sinks), RunState())
    status = "interrupted"
    try:
        yield recording
        status = "finished" if recording.state.step >= steps else "interrupted"
    except Exception as error:
        status = f"failed: {error}"
        raise
    finally:
        recording.telemetry.finish(status)


def build_cluster(config: TrainConfig, run_folder: Path) -> LocalRay:
    """Ray with the GPUs that the config asks for. Raises `UserError` when there are fewer."""
    cluster = config.cluster
    ranks = config.learner.tensor_parallel * config.learner.data_parallel
    num_gpus = config.rollout.replicas * cluster.gpus_per_engine
    num_gpus += ranks * cluster.gpus_per_learner_rank
    return LocalRay(run_folder / "logs", cluster.temp_dir, num_gpus)


def build_engine_and_learner(
    config: TrainConfig, model: Path, drafter: Drafter, cluster: Cluster, stack: ExitStack
) -> tuple[RolloutEngine, Learner]:
    """Both start at once, each in its own processes; `stack` closes the engine."""
    engine_actors = spawn_engines(config, model, drafter, cluster)
    learner = build_learner(config, model, cluster)
    engine = VllmEngine(engine_actors, config.model.max_model_len)
    engine.wait_ready()
    return stack.enter_context(closing(engine)), learner


def build_plan(config: TrainConfig) -> Plan:
    """The numbers the loop needs."""
    rollout = config.rollout
    return Plan(
        steps=config.steps,
        prompts_per_step=rollout.prompts_per_step,
        group_size=rollout.group_size,
        sampling=Sampling(
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            max_tokens=rollout.max_tokens,
            stop_token_ids=tuple(rollout.stop_token_ids),
            stop=tuple(rollout.stop),
            ignore_eos=rollout.ignore_eos,
            seed=rollout.seed,
        ),
        advantage=config.algorithm.advantage,
        evaluation=EvaluationPlan(**asdict(config.evaluation)),
        checkpoint_every=config.checkpoint.every,
    )


def build_drafter(config: TrainConfig, model: Path) -> Drafter:
    """The drafter of the config."""
    match config.drafter:
        case NoDrafterConfig() as drafter:
            return NoDrafter(drafter)
        case NgramConfig() as drafter:
            return NgramDrafter(drafter)
        case DraftModelConfig() as drafter:
            return DraftModelDrafter(drafter, model, prepare_draft(drafter))
        case other:
            raise AssertionError(f"no drafter for {type(other).__name__}")


def build_task(config: TrainConfig, model: Path) -> Task:
    """The task of the config, with prompts in the model's tokens.

    Raises `UserError` when they leave no room for a response.
    """
    encode = PromptFormat(load_tokenizer(model), config.task.prompt_style).encode
    task = _task(config.task, encode, config.model.max_model_len - 1)
    longest = max(task.train(0, PROMPTS_CHECKED), key=lambda prompt: len(prompt.token_ids))
    if len(longest.token_ids) >= config.model.max_model_len:
        raise UserError(
            f"prompt {longest.id} has {len(longest.token_ids)} tokens, which leaves no room for a "
            f"response in model.max_model_len={config.model.max_model_len}; raise it"
        )
    return task


def _task(
    config: TaskConfig, encode: Callable[[str], tuple[int, ...]], max_prompt_tokens: int
) -> Task:
    match config:
        case ArithmeticConfig():
            return Arithmetic(config, encode)
        case DapoMathConfig():
            return DapoMath(config, encode, max_prompt_tokens)
        case Gsm8kConfig():
            return Gsm8k(config, encode, max_prompt_tokens)
        case other:
            raise AssertionError(f"no task for {type(other).__name__}")


def weight_bytes(model: Path) -> int:
    """Size of the model's weights on disk."""
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))


def spawn_engines(
    config: TrainConfig, model: Path, drafter: Drafter, cluster: Cluster
) -> list[Actor]:
    """One engine process per replica, starting in the background."""
    gpus = config.cluster.gpus_per_engine
    settings = replica_settings(
        model, config.model.max_model_len, config.rollout, drafter.speculative_config()
    )
    cores = usable_cores(config.rollout.cores, gpus)
    shares = split_cores(cores, config.rollout.replicas)
    return [
        cluster.spawn(
            f"engine-{number}",
            "specrl.rollout.worker:EngineWorker",
            Placement(cores=own, num_gpus=gpus, env=engine_environment(own, gpus)),
            replica,
        )
        for number, (replica, own) in enumerate(zip(settings, shares, strict=True))
    ]


def build_learner(config: TrainConfig, model: Path, cluster: Cluster) -> Learner:
    """The learner over one process per rank; returns when the weights are loaded."""
    placements = rank_placements(config.learner, config.cluster.gpus_per_learner_rank)
    actors = [
        cluster.spawn(
            f"learner-{rank}",
            "specrl.learner.rank:LearnerRank",
            placement,
            str(model),
            config.learner,
            config.algorithm,
            config.rollout.temperature,
            config.rollout.dtype,
            config.seed,
            rank,
            len(placements),
        )
        for rank, placement in enumerate(placements)
    ]
    return MegatronLearner(actors, config.learner, config.algorithm)


def build_sinks(
    config: TrainConfig,
    run_folder: Path,
    overrides: Sequence[str],
    state: RunState,
    console: ConsoleSink,
) -> list[Sink]:
    """Where the metrics of the run go; a run that started before goes on in the same records."""
    started = (run_folder / METRICS_FILE).exists() and not config.rerun
    tracking = config.tracking
    jsonl = JsonlSink(
        run_folder,
        config=asdict(config),
        overrides=overrides,
        tags=tracking.tags if isinstance(tracking, MlflowConfig) else {},
        resume_step=state.step - 1 if started else None,
    )
    if not isinstance(tracking, MlflowConfig):
        return [jsonl, console]
    mlflow = MlflowSink(run_folder, tracking, run_id=state.run_id, warn=_warning(console))
    return [jsonl, console, mlflow]


def _warning(console: ConsoleSink) -> Callable[[str], None]:
    def warn(message: str) -> None:
        logger.warning(message)
        console.note(message)

    return warn


def _ui_command(config: TrainConfig) -> str | None:
    tracking = config.tracking
    return ui_command(tracking.uri) if isinstance(tracking, MlflowConfig) else None
