"""Configs become objects; the only file that knows every class."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from specrl.build_draft import build_draft_init, check_draft_init, draft_place
from specrl.build_processes import (
    DraftOutlook,
    build_cluster,
    build_engine_and_learner,
    build_sampling,
    check_cluster,
    spawn_mirrors,
    weight_bytes,
)
from specrl.build_warm_start import build_warm_start, warm_start_place
from specrl.checkpoint import CheckpointStore, RunState
from specrl.config.drafter import DraftModelConfig, Eagle3Config, NgramConfig, NoDrafterConfig
from specrl.config.signature import signature
from specrl.config.task import ArithmeticConfig, DapoMathConfig, Gsm8kConfig, TaskConfig
from specrl.config.tracking import MlflowConfig
from specrl.config.train import TrainConfig
from specrl.draft_record import InitRecord, read_record
from specrl.drafter import DraftModelDrafter, Eagle3Drafter, NgramDrafter, NoDrafter
from specrl.errors import UserError
from specrl.evaluate import EvaluationPlan
from specrl.learner.layout import check_layout
from specrl.loop import Parts, Plan, train
from specrl.models.cache import is_intact, work_of
from specrl.models.prepare import made_model, prepare_draft, prepare_model
from specrl.models.prompt_format import PromptFormat, load_tokenizer
from specrl.protocols import Drafter, Task
from specrl.run_folder import LOG_FILE, logging_to
from specrl.tasks.arithmetic import Arithmetic
from specrl.tasks.dapo_math import DapoMath
from specrl.tasks.gsm8k import Gsm8k
from specrl.telemetry.console import ConsoleSink
from specrl.telemetry.jsonl import METRICS_FILE, JsonlSink, StepRecord, read_info, read_run
from specrl.telemetry.mlflow_run import ui_command
from specrl.telemetry.mlflow_sink import MlflowSink
from specrl.telemetry.recorder import Recorder
from specrl.telemetry.sink import Sink
from specrl.weight_sync.shared_memory import SharedMemorySync

logger = logging.getLogger(__name__)

DRAFT_FOLDER = "draft"  # of a checkpoint
FIRST_RATE = "spec/acceptance_rate_pos_0"
PROMPTS_CHECKED = 64  # for room in model.max_model_len, before anything starts


def run(config: TrainConfig, run_folder: Path, overrides: Sequence[str]) -> None:
    """Trains from the newest checkpoint in `run_folder`, or from step 0, to `config.steps`.

    The folder exists and the caller holds it (`specrl.run_folder.exclusive`). Raises `UserError`
    for what the config asks and this machine or its files cannot give, and `RunError` when the run
    failed on the way; `run.log` in the folder has the traceback. A run that a signal ended has
    saved its steps and raises KeyboardInterrupt.
    """
    with logging_to(run_folder / LOG_FILE):
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
    check_cluster(config)
    with ExitStack() as stack:
        model, task = prepared(config, console, stack)
        draft = first_draft(config, model, task, checkpoint, console)
        record = None if draft is None else read_record(draft)
        drafter = build_drafter(config, model, draft)
        sinks = build_sinks(config, run_folder, overrides, state, console)
        recording = stack.enter_context(_recording(sinks, config.steps))
        if record is not None:
            recording.telemetry.carry(record.metrics(config.drafter.longest_k))
        recording.telemetry.note("starting the engine and the learner")
        cluster = stack.enter_context(closing(build_cluster(config, run_folder)))
        note = recording.telemetry.note
        seen = read_run(run_folder).records if state.step else []
        outlook = draft_outlook(config, record, seen, state, note)
        engine, learner = build_engine_and_learner(config, model, drafter, cluster, stack, outlook)
        published_bytes = weight_bytes(model) + (weight_bytes(draft) if draft else 0)
        mirrors = spawn_mirrors(config, cluster)
        weight_sync = SharedMemorySync(learner, engine, published_bytes, mirrors)
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


def foreseen_draft(config: TrainConfig) -> list[str]:
    """What `init_draft` would do, for people; makes and downloads nothing. Raises `UserError`."""
    _check_learned(config)
    init, policy = config.init, f"model={config.model.name}"
    if init.name == "checkpoint":
        return [f"init=checkpoint: takes init.path={init.path} over; nothing is fitted"]
    asked = f"init={init.name} for {policy}: {init.num_prompts} prompts"
    base = made_model(config.model)
    if base is None:
        return [f"{asked}; to be built: {policy} is not here, so that no draft of it can be"]
    model = warm_start_place(config, base)
    if model != base and not is_intact(model):
        return [f"{asked}; to be built, after the warm start of {policy}, which is not here either"]
    with closing(build_task(config, base)) as task:
        place, source = draft_place(config, model, task)
    if is_intact(place):
        record = read_record(place)
        return [f"there already: {place}", *(record.lines() if record else [])]
    state = "begun, to be gone on with" if work_of(place).exists() else "to be built"
    return [f"{asked}, {source}; {state}: {place}"]


def init_draft(config: TrainConfig, console: ConsoleSink) -> Path:
    """Folder of the draft that a run with this config would start from, built where it is not yet.

    Raises as `run` does; KeyboardInterrupt after saving what is done of the build.
    """
    _check_learned(config)
    with ExitStack() as stack:
        model, task = prepared(config, console, stack)
        return build_draft_init(config, model, task, Recorder([console]))


def _check_learned(config: TrainConfig) -> None:
    if not config.drafter.learned:
        raise UserError(
            f"drafter={config.drafter.name} has no weights to initialise; use drafter=eagle3"
        )


def prepared(config: TrainConfig, console: ConsoleSink, stack: ExitStack) -> tuple[Path, Task]:
    """The policy's folder, and the task, which `stack` closes.

    What the run would refuse later is refused before a warm start.
    """
    base = prepare_model(
        config.model, lambda folder: check_layout(folder, config.learner), console.note
    )
    # A warm start changes the weights only: its tokenizer is that of the base.
    task = stack.enter_context(closing(build_task(config, base)))
    refuse = partial(check_draft_init, config, base, task)
    return build_warm_start(config, base, Recorder([console]), refuse), task


def first_draft(
    config: TrainConfig, model: Path, task: Task, checkpoint: Path | None, console: ConsoleSink
) -> Path | None:
    """Folder of the learned draft's weights: those saved with `checkpoint`, or of its init."""
    if not config.drafter.learned:
        return None
    if checkpoint is not None:
        return checkpoint / DRAFT_FOLDER
    return build_draft_init(config, model, task, Recorder([console]))


def draft_outlook(
    config: TrainConfig,
    init: InitRecord | None,
    records: Sequence[StepRecord],
    state: RunState,
    note: Callable[[str], None],
) -> DraftOutlook:
    """A resumed run judges its draft by the steps it has seen, a new one by the init's estimate.

    An estimate counts for drafts made as this run makes them.
    """
    fitted = config.drafter.learned and config.init.name != "random"
    if state.step > 0:
        seen = [record.metrics[FIRST_RATE] for record in records if FIRST_RATE in record.metrics]
        return DraftOutlook(note, fitted, history=seen)
    sampling = config.drafter.sampling if isinstance(config.drafter, Eagle3Config) else None
    if init is None or not init.acceptance or init.sampling != sampling:
        return DraftOutlook(note, fitted)
    return DraftOutlook(note, fitted, [b - a for a, b in pairwise((1.0, *init.acceptance))])


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


def build_plan(config: TrainConfig) -> Plan:
    """The numbers the loop needs."""
    rollout = config.rollout
    return Plan(
        steps=config.steps,
        prompts_per_step=rollout.prompts_per_step,
        group_size=rollout.group_size,
        sampling=build_sampling(rollout),
        advantage=config.algorithm.advantage,
        evaluation=EvaluationPlan(**asdict(config.evaluation)),
        checkpoint_every=config.checkpoint.every,
    )


def build_drafter(config: TrainConfig, model: Path, draft: Path | None) -> Drafter:
    """The drafter of the config; `draft` is the folder of a learned one's weights."""
    match config.drafter:
        case NoDrafterConfig() as drafter:
            return NoDrafter(drafter)
        case NgramConfig() as drafter:
            return NgramDrafter(drafter)
        case DraftModelConfig() as drafter:
            return DraftModelDrafter(drafter, model, prepare_draft(drafter))
        case Eagle3Config() as drafter:
            assert draft is not None
            return Eagle3Drafter(drafter, draft, config.adaptation)
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
