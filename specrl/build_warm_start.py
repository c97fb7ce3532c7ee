"""A policy that starts with a supervised pass, as a cached Hugging Face folder."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import xxhash

from specrl.build_processes import autoregressive_engine, build_cluster, build_learner
from specrl.config.learner import LearnerConfig
from specrl.config.task import ArithmeticConfig
from specrl.config.train import TrainConfig
from specrl.config.warm_start import WarmStartConfig
from specrl.durable import digest
from specrl.errors import UserError
from specrl.interruption import interruption
from specrl.models.cache import cache_root, folder_name, resumable_folder
from specrl.models.prompt_format import PromptFormat, load_tokenizer
from specrl.models.warm_folder import write_model_folder
from specrl.protocols import Learner, Telemetry
from specrl.tasks.arithmetic import Arithmetic
from specrl.tasks.worked_solutions import SOLUTIONS
from specrl.types import Sampling, WeightSnapshot
from specrl.warm_start import (
    Example,
    Fit,
    Fitted,
    WarmStartRecord,
    Worth,
    batches,
    measure,
    read_record,
    told,
    write_record,
)

# Part of the cache key: raise it when the same config would give another model.
RECIPE = 1
DTYPE = "bfloat16"


def build_warm_start(
    config: TrainConfig,
    base: Path,
    telemetry: Telemetry,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Folder of `config.model`, whose base is in the folder `base`: that one without a warm start.

    Built now or found from an earlier run. A build that was killed or interrupted goes on where it
    was; of several processes that need the same model one builds and the others wait. Raises
    `UserError` for questions that are not to be had or do not fit, KeyboardInterrupt after saving.
    `check` is called before a build and may refuse it.
    """
    if config.model.warm_start is None:
        return base
    warm_start = config.model.warm_start
    place = warm_start_place(config, base)
    own = _own_config(config, warm_start)
    job = _Job(own, warm_start, base, telemetry)

    def make(folder: Path, work: Path) -> None:
        check()
        job.make(folder, work)

    folder = resumable_folder(place.parent, place.name, make, telemetry.note)
    record = read_record(folder)
    if record is not None:
        telemetry.note(told(folder, record))
    return folder


def warm_start_place(config: TrainConfig, base: Path) -> Path:
    """Where `build_warm_start` has its folder, or will have it."""
    if config.model.warm_start is None:
        return base
    name = folder_name(config.model.name, cache_key(config.model.warm_start, base))
    return cache_root(config.model) / name


def cache_key(warm_start: WarmStartConfig, base: Path) -> str:
    """What the model and its record depend on, as text."""
    names = sorted(path.name for path in base.iterdir() if path.suffix in (".json", ".safetensors"))
    files = [f"{name} {digest(base / name)}" for name in names]
    parts = {
        "recipe": [RECIPE, SOLUTIONS],
        "base": xxhash.xxh3_64_hexdigest("\n".join(files).encode()),
        "warm_start": asdict(warm_start),
    }
    return json.dumps(parts, sort_keys=True)


def arithmetic(warm_start: WarmStartConfig, base: Path) -> Arithmetic:
    """The questions; errors name the keys of the warm start."""
    config = ArithmeticConfig(
        prompt_style=warm_start.prompt_style,
        instruction=warm_start.instruction,
        seed=warm_start.seed,
        generators=warm_start.generators,
        difficulty=warm_start.difficulty,
        generator_args=warm_start.generator_args,
        train_size=warm_start.examples,
        validation_size=warm_start.validation_prompts,
    )
    try:
        encode = PromptFormat(load_tokenizer(base), config.prompt_style).encode
        return Arithmetic(config, encode)
    except UserError as error:
        text = str(error).replace("task.train_size", "model.warm_start.examples")
        text = text.replace("task.validation_size", "model.warm_start.validation_prompts")
        raise UserError(text.replace("task.", "model.warm_start.")) from None


def worked_examples(
    warm_start: WarmStartConfig, task: Arithmetic, base: Path, max_model_len: int
) -> list[Example]:
    """Every training question once with its solution. Raises `UserError` when one is too long."""
    tokenizer = load_tokenizer(base)
    examples = []
    for prompt in task.train(0, warm_start.examples):
        solution = tokenizer.encode(task.worked_solution(prompt), add_special_tokens=False)
        examples.append(Example(prompt.token_ids, (*solution, tokenizer.eos_token_id)))
    longest = max(len(e.prompt_ids) + len(e.response_ids) for e in examples)
    if longest > max_model_len:
        raise UserError(
            f"a worked solution has {longest} tokens with its question, more than "
            f"model.max_model_len={max_model_len}; raise it or lower model.warm_start.difficulty"
        )
    return examples


@dataclass(frozen=True)
class _Job:
    """One model to build."""

    config: TrainConfig
    warm_start: WarmStartConfig
    base: Path
    telemetry: Telemetry

    def make(self, folder: Path, work: Path) -> None:
        """Fills `folder` with the model and its record; a killed build goes on in `work`."""
        warm_start = self.warm_start
        task = arithmetic(warm_start, self.base)
        examples = worked_examples(warm_start, task, self.base, self.config.model.max_model_len)
        self.telemetry.note(
            f"building {self.config.model.name}: a supervised pass on {len(examples)} worked "
            "solutions, once"
        )
        work.mkdir(parents=True, exist_ok=True)
        with interruption() as signal:
            fitted, base, tuned = self._fit(examples, work, lambda: bool(signal.requested))
            before, after = self._worths(task, base, tuned, work)
            if signal.requested:  # the fit is saved: only the measurement is done again
                raise KeyboardInterrupt
        write_model_folder(self.base, tuned.path, DTYPE, folder)
        record = WarmStartRecord(
            examples=len(examples),
            steps=fitted.steps,
            tokens=fitted.tokens,
            training_s=fitted.seconds,
            nll=fitted.nll,
            before=before,
            after=after,
        )
        write_record(folder, record)

    def _fit(
        self, examples: list[Example], work: Path, stop: Callable[[], bool]
    ) -> tuple[Fitted, WeightSnapshot, WeightSnapshot]:
        """Snapshots of the weights before and after it, besides."""
        warm_start = self.warm_start
        steps = batches(examples, warm_start.passes, warm_start.batch_examples, warm_start.seed)
        with closing(build_cluster(self.config, work, engine=False)) as cluster:
            learner: Learner = build_learner(self.config, self.base, cluster)
            base = learner.export_weights(work, 0)
            fitted = Fit(learner, steps, work, self.telemetry.note, stop).run()
            return fitted, base, learner.export_weights(work, 1)

    def _worths(
        self, task: Arithmetic, base: WeightSnapshot, tuned: WeightSnapshot, work: Path
    ) -> tuple[Worth, Worth]:
        """Both sets of weights in the engine that runs use."""
        warm_start = self.warm_start
        sampling = Sampling(temperature=1.0, max_tokens=warm_start.max_tokens, seed=warm_start.seed)
        found = []
        with autoregressive_engine(self.config, self.base, work) as engine:
            for label, snapshot in (("before", base), ("after", tuned)):
                engine.load_weights(snapshot)
                progress = self.telemetry.progress(f"responses {label} the warm start")
                prompts, samples = warm_start.validation_prompts, warm_start.samples
                found.append(measure(task, engine, prompts, samples, sampling, progress))
        before, after = found
        return before, after


def _own_config(config: TrainConfig, warm_start: WarmStartConfig) -> TrainConfig:
    """The run's machine and layout with the warm start's own training, which a key stands for."""
    layout = config.learner
    steps = warm_start.passes * -(-warm_start.examples // warm_start.batch_examples)
    learner = LearnerConfig(
        name=layout.name,
        tensor_parallel=layout.tensor_parallel,
        data_parallel=layout.data_parallel,
        tokens_per_microbatch=layout.tokens_per_microbatch,
        logits_chunk_tokens=layout.logits_chunk_tokens,
        recompute=layout.recompute,
        cores=layout.cores,
        learning_rate=warm_start.learning_rate,
        warmup_steps=warm_start.warmup_steps,
        decay_steps=max(0, steps - warm_start.warmup_steps),
        recompute_logprobs=False,
    )
    algorithm = replace(
        config.algorithm, kl_coef=0.0, truncated_is=None, minibatches=1, aggregation="token"
    )
    rollout = replace(config.rollout, temperature=1.0, top_p=1.0, dtype=DTYPE)
    return replace(
        config, learner=learner, algorithm=algorithm, rollout=rollout, seed=warm_start.seed
    )
