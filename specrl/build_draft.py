"""A learned draft's first weights as a cached folder that vLLM loads."""

import datetime
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from specrl.algo.aux_layers import aux_layers
from specrl.algo.draft_vocabulary import choose_draft_vocabulary, coverage
from specrl.build_processes import DraftProcesses, build_sampling
from specrl.config.drafter import AUTO_MAX_K, Eagle3Config
from specrl.config.train import TrainConfig
from specrl.draft_init import Fit, FitPlan, FitState
from specrl.draft_record import InitRecord, read_record, write_record
from specrl.draft_responses import Responses, Watch
from specrl.durable import digest
from specrl.errors import UserError
from specrl.interruption import interruption
from specrl.models.cache import cache_root, cached_folder, folder_name, resumable_folder
from specrl.models.prepare import HUB_PATTERNS, local_folder
from specrl.models.prompt_format import PromptFormat, load_tokenizer
from specrl.protocols import Task, Telemetry
from specrl.rollout.engine_args import that_change_responses
from specrl.tasks.chat_prompts import load_chat_prompts
from specrl.telemetry.recorder import Recorder
from specrl.types import Prompt

# Part of the cache key: raise it when the same config would give another draft.
RECIPE = 3
# What a run sets of a drafter that its first weights do not depend on.
NOT_IN_KEY = ("k", "remeasure", "sampling", "verification", "on_collapse", "health")
SHIPPED = "the chat prompts that specrl ships"


def build_draft_init(
    config: TrainConfig,
    model: Path,
    task: Task,
    telemetry: Telemetry,
    processes: DraftProcesses | None = None,
) -> Path:
    """Folder of the draft that `config.init` asks for, built now or found from an earlier run.

    A build that was killed or interrupted goes on where it was; of several processes that need
    the same init one builds and the others wait. Raises `UserError` for an init that is not to be
    had, `RunError` when the build failed, KeyboardInterrupt after saving what is done.
    """
    drafter = config.drafter
    assert isinstance(drafter, Eagle3Config), drafter
    root = _root(config)
    if config.init.name == "checkpoint":
        return _adopted(config, drafter, model, root)
    processes = processes or DraftProcesses(config, model)
    name, job = _prepare(config, drafter, model, task, telemetry, processes)
    folder = resumable_folder(root, name, job.make, telemetry.note)
    record = read_record(folder)
    if record is not None:
        telemetry.note(told(folder, record, drafter.longest_k))
    return folder


def draft_place(config: TrainConfig, model: Path, task: Task) -> tuple[Path, str]:
    """Where a draft that is fitted, or random, is or will be, and which prompts it is made from."""
    drafter = config.drafter
    assert isinstance(drafter, Eagle3Config), drafter
    name, job = _prepare(config, drafter, model, task, Recorder([]), DraftProcesses(config, model))
    return _root(config) / name, f"{len(job.prompts)} of {job.source}"


def check_draft_init(config: TrainConfig, model: Path, task: Task) -> None:
    """Raises `UserError` for what `build_draft_init` would refuse, before it takes any time.

    The model's weights do not matter here: its base will do.
    """
    drafter = config.drafter
    if not isinstance(drafter, Eagle3Config):
        return
    if config.init.name == "checkpoint":
        from specrl.drafter.eagle3_folder import check_folder

        source, layers = _source(config, drafter, model)
        check_folder(source, model, layers)
        return
    draft_shape(drafter, _model_config(model))
    if config.init.name == "ultrachat":
        _chat_prompts(config, model)
    else:
        _task_prompts(config, task)


def told(folder: Path, record: InitRecord, k: int) -> str:
    """Where a draft is, what it cost and what it is worth, in one line."""
    words = [
        f"draft {folder}: init={record.init}",
        f"{record.prompts} prompts",
        f"{record.response_tokens} response tokens",
        f"{record.seconds:.0f} s",
        f"built {record.built}",
    ]
    length = record.acceptance_length(k)
    if length is not None:
        words.append(f"held-out acceptance length {length:.2f} at k={k}, {record.sampling} drafts")
    return ", ".join(words)


def policy_digest(model: Path) -> str:
    """Checksum of the weights and the config of a model folder."""
    files = [*sorted(model.glob("*.safetensors")), model / "config.json"]
    return xxhash.xxh3_64_hexdigest("".join(digest(path) for path in files).encode())


def cache_key(
    config: TrainConfig, model: Path, prompts: Sequence[Prompt], heldout: Sequence[Prompt]
) -> str:
    """What the draft's first weights and their record depend on, as text."""
    files = {
        "recipe": RECIPE,
        "policy": policy_digest(model),
        "prompts": _prompts_digest(prompts),
        "heldout": _prompts_digest(heldout),
    }
    return json.dumps(init_settings(config) | files, sort_keys=True)


def init_settings(config: TrainConfig) -> dict[str, Any]:
    """What a config says of the draft's first weights, whatever the files it names hold."""
    drafter, init = asdict(config.drafter), asdict(config.init)
    return {
        "precision": [config.rollout.dtype, config.learner.precision],
        "max_model_len": config.model.max_model_len,
        "init": {name: value for name, value in init.items() if name not in ("path", "revision")},
        "drafter": {name: value for name, value in drafter.items() if name not in NOT_IN_KEY},
        "sampling": asdict(replace(build_sampling(config.rollout), seed=None)),
        "engine_args": that_change_responses(config.rollout.engine_args),
        # What is in one microbatch, and in one update: both change the fit.
        "batches": [config.learner.tokens_per_microbatch, config.learner.data_parallel],
    }


def draft_shape(
    drafter: Eagle3Config, policy: Mapping[str, Any]
) -> tuple[int, tuple[int, int, int]]:
    """Draft vocabulary size and auxiliary layers for a policy's config.json.

    Raises `UserError` for what the policy does not have.
    """
    vocab = policy["vocab_size"]
    size = min(drafter.vocab_size or vocab, vocab)
    return size, aux_layers(drafter.aux_layers, policy["num_hidden_layers"])


def _root(config: TrainConfig) -> Path:
    return cache_root(config.model) / "drafts"


class _Wall:
    """Seconds of this build and of those before it that did not come to an end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            before = float(json.loads(self._path.read_text()))
        except (OSError, ValueError):  # the first build, or one that was killed while writing
            before = 0.0
        self.seconds = before + time.monotonic() - self._began
        self._path.write_text(json.dumps(self.seconds))


@dataclass(frozen=True)
class _Job:
    """One init to build."""

    config: TrainConfig
    drafter: Eagle3Config
    model: Path
    prompts: list[Prompt]
    heldout: list[Prompt]
    source: str
    telemetry: Telemetry
    processes: DraftProcesses

    def make(self, folder: Path, work: Path) -> None:
        """Fills `folder` with the draft and its record; a killed build goes on in `work`."""
        self.telemetry.note(f"building a draft: init={self.config.init.name} from {self.source}")
        if self.config.init.name == "random":
            self._make_random(folder)
            return
        work.mkdir(parents=True, exist_ok=True)
        with interruption() as signal:
            watch = Watch(
                note=self.telemetry.note,
                progress=self.telemetry.progress,
                stop=lambda: bool(signal.requested),
            )
            with _Wall(work / "wall.json") as wall:
                record = self._fitted(folder, work, watch)
            write_record(folder, replace(record, wall_s=wall.seconds))

    def _make_random(self, folder: Path) -> None:
        covered = self._write_fresh(folder, ())
        write_record(folder, self._record(coverage=covered))

    def _fitted(self, folder: Path, work: Path, watch: Watch) -> InitRecord:
        init = self.config.init
        train = Responses(work / "responses.jsonl", self.prompts, init.samples_per_prompt)
        heldout = Responses(work / "heldout.jsonl", self.heldout, 1)
        if train.missing or heldout.missing:
            self._generate(train, heldout, work, watch)
        fresh = work / "fresh"
        covered = self._write_fresh(fresh, [rollout.token_ids for rollout in train.rollouts])
        watch.pause()
        state = self._fit(work, folder, train, heldout, watch)
        return self._record(
            coverage=covered,
            responses=len(train.rollouts),
            response_tokens=train.tokens,
            heldout_prompts=len(self.heldout),
            heldout_tokens=heldout.tokens,
            generation_s=train.seconds + heldout.seconds,
            fit_s=state.seconds,
            trained_tokens=state.tokens,
            loss=state.loss,
            acceptance_before=state.acceptance_before,
            acceptance=state.acceptance,
        )

    def _generate(self, train: Responses, heldout: Responses, work: Path, watch: Watch) -> None:
        """Lets the engine give what is missing."""
        sampling, seed = build_sampling(self.config.rollout), self.config.init.seed
        with self.processes.engine(work) as engine:
            heldout.complete(engine, sampling, seed + 1, watch, "held-out responses")
            train.complete(engine, sampling, seed, watch, "responses")

    def _fit(
        self, work: Path, folder: Path, train: Responses, heldout: Responses, watch: Watch
    ) -> FitState:
        init = self.config.init
        copies = self.config.learner.data_parallel
        plan = FitPlan(
            passes=init.passes,
            learning_rate=init.learning_rate,
            warmup_share=init.warmup_share,
            tv_share=init.tv_share,
            shard_tokens=init.tokens_in_memory * copies,
            update_tokens=self.drafter.training.tokens_per_update * copies,
            k=max(AUTO_MAX_K, self.drafter.longest_k),
        )
        with self.processes.learner(work, work / "fresh") as learner:
            fit = Fit(learner, train.rollouts, heldout.rollouts, plan, work / "fit", watch)
            state = fit.run()
            learner.export_draft(folder)
        return state

    def _write_fresh(self, folder: Path, responses: Sequence[Sequence[int]]) -> float:
        """Writes the untrained draft; returns its `InitRecord.coverage`.

        It proposes what is frequent in the responses, then what is frequent in the prompts.
        """
        from specrl.drafter.eagle3_folder import fresh_folder

        shape = _model_config(self.model)
        size, layers = draft_shape(self.drafter, shape)
        responses_V = token_counts(responses, shape["vocab_size"])
        prompts_V = token_counts([p.token_ids for p in self.prompts], shape["vocab_size"])
        ids_D = choose_draft_vocabulary(responses_V * (1 + prompts_V.sum()) + prompts_V, size)
        target_ids = None if size == shape["vocab_size"] else ids_D.tolist()
        seed, dtype = self.config.init.seed, self.config.rollout.dtype
        fresh_folder(self.model, target_ids, layers, seed, dtype, folder)
        return coverage(responses_V if responses else prompts_V, ids_D)

    def _record(self, **values: Any) -> InitRecord:
        return InitRecord(
            init=self.config.init.name,
            policy=self.config.model.name,
            built=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            prompt_source=self.source,
            prompts=len(self.prompts),
            sampling=self.drafter.sampling,
            **values,
        )


def _prepare(
    config: TrainConfig,
    drafter: Eagle3Config,
    model: Path,
    task: Task,
    telemetry: Telemetry,
    processes: DraftProcesses,
) -> tuple[str, _Job]:
    """The cache name of an init, and how it is built."""
    draft_shape(drafter, _model_config(model))  # before anything that takes long
    if config.init.name == "ultrachat":
        prompts, source = _chat_prompts(config, model)
    else:
        prompts = _task_prompts(config, task)
        source = f"the training prompts of {task.name}"
    if len(prompts) < config.init.num_prompts:
        telemetry.note(
            f"init.num_prompts={config.init.num_prompts}: {source} are only {len(prompts)} that "
            "fit; going on with those"
        )
    heldout = task.validation(config.init.heldout_prompts)
    label = f"{config.model.name}-{drafter.name}-{config.init.name}-{len(prompts)}"
    name = folder_name(label, cache_key(config, model, prompts, heldout))
    job = _Job(config, drafter, model, prompts, heldout, source, telemetry, processes)
    return name, job


def _task_prompts(config: TrainConfig, task: Task) -> list[Prompt]:
    """Raises `UserError` where there are fewer than asked for."""
    asked = config.init.num_prompts
    prompts = task.train(0, asked)
    distinct = len({prompt.id for prompt in prompts})
    if distinct < asked:
        raise UserError(
            f"init.num_prompts={asked} is more than the {distinct} training prompts of "
            f"task={task.name}; use at most {distinct}"
        )
    return prompts


def _chat_prompts(config: TrainConfig, model: Path) -> tuple[list[Prompt], str]:
    tokenizer = load_tokenizer(model)
    if not tokenizer.chat_template:
        raise UserError(
            "init=ultrachat: this model's tokenizer has no chat template; use init=dapo or an "
            "instruction-tuned model"
        )
    init = config.init
    prompts = load_chat_prompts(
        init.path,
        init.revision,
        init.num_prompts,
        PromptFormat(tokenizer, "chat").encode,
        config.model.max_model_len - 1,
    )
    return prompts, SHIPPED if init.path is None else init.path


def _adopted(config: TrainConfig, drafter: Eagle3Config, model: Path, root: Path) -> Path:
    """The draft of `init.path`, checked, in the layout that the engine loads."""
    from specrl.drafter.eagle3_folder import adopt_folder

    source, layers = _source(config, drafter, model)
    files = [path for path in sorted(source.iterdir()) if path.is_file()]
    sums = [f"{path.name} {digest(path)}" for path in files]
    recipe = json.dumps([RECIPE, sums, policy_digest(model), layers])
    name = folder_name(f"{config.model.name}-{drafter.name}-checkpoint", recipe)
    return cached_folder(root, name, lambda folder: adopt_folder(source, model, layers, folder))


def _source(
    config: TrainConfig, drafter: Eagle3Config, model: Path
) -> tuple[Path, tuple[int, int, int]]:
    """The folder of `init.path`, and the layers that the run gives a draft."""
    assert config.init.path is not None
    files = (*HUB_PATTERNS, "pytorch_model.bin")  # all that the EAGLE authors publish
    source = local_folder("init", config.init.path, config.init.revision, files=files)
    return source, aux_layers(drafter.aux_layers, _model_config(model)["num_hidden_layers"])


def token_counts(sequences: Iterable[Sequence[int]], vocab_size: int) -> NDArray[np.int64]:
    """How often each token of the vocabulary occurs."""
    counts_V = np.zeros(vocab_size, np.int64)
    for token_ids in sequences:
        np.add.at(counts_V, np.asarray(token_ids, np.int64), 1)
    return counts_V


def _prompts_digest(prompts: Sequence[Prompt]) -> str:
    lines = (f"{prompt.id} {prompt.token_ids}\n" for prompt in prompts)
    return xxhash.xxh3_64_hexdigest("".join(lines).encode())


def _model_config(model: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((model / "config.json").read_text())
    return values
