"""Draft inits as artifacts: what names them, and that each is built once."""

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache as remembered
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from specrl.build import build_task, foreseen_draft
from specrl.build_draft import build_draft_init, cache_key, check_draft_init, token_counts
from specrl.build_processes import DraftProcesses
from specrl.config.compose import load
from specrl.config.train import TrainConfig
from specrl.draft_record import read_record
from specrl.drafter.eagle3_folder import check_folder
from specrl.errors import EngineError, UserError
from specrl.fakes import FakeEngine, FakeLearner, FakeTelemetry, Faults
from specrl.models.prepare import prepare_model

TINY = ["debug=tiny", "drafter=eagle3", "model.tiny.num_hidden_layers=4", "drafter.vocab_size=64"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def config_of(cache: Path, *overrides: str) -> TrainConfig:
    return load([*TINY, "init.num_prompts=8", f"model.cache_dir={cache}", *overrides])


@remembered
def key(cache: Path, *overrides: str) -> str:
    config = config_of(cache, *overrides)
    model = prepare_model(config.model)
    task = build_task(config, model)
    return cache_key(config, model, task.train(0, config.init.num_prompts), task.validation(4))


def init(config: TrainConfig, notes: list[str] | None = None) -> Path:
    telemetry = FakeTelemetry(notes=[] if notes is None else notes)
    model = prepare_model(config.model)
    return build_draft_init(config, model, build_task(config, model), telemetry)


USES = [
    "drafter.k=7",
    "drafter.remeasure=true",
    "drafter.verification=block",
    "drafter.on_collapse=fail",
    "drafter.health.floor=0.2",
    "adaptation=online",
    "steps=9",
    "seed=0",
    "rollout.seed=5",
    "rollout.prompts_per_step=4",
    "rollout.replicas=2",
    "+rollout.engine_args.max_num_seqs=4",
    "learner.learning_rate=1e-3",
    "evaluation.every=1",
]


@pytest.mark.parametrize("overrides", [USES, ["drafter.k=auto", "drafter.sampling=greedy"]])
def test_what_a_run_does_with_a_draft_is_not_in_its_key(cache: Path, overrides: list[str]) -> None:
    assert key(cache, *overrides) == key(cache)


@pytest.mark.parametrize(
    "override",
    [
        "model.tiny.seed=1",
        "model.max_model_len=256",
        "rollout.dtype=float32",
        "rollout.temperature=0.7",
        "rollout.top_p=0.9",
        "rollout.max_tokens=9",
        "rollout.stop=[x]",
        "rollout.ignore_eos=true",
        "learner.precision=fp32",
        "task.difficulty=2",
        "task.seed=1",
        "task.prompt_style=raw",
        "init=ultrachat",
        "init.num_prompts=9",
        "init.samples_per_prompt=3",
        "init.passes=2",
        "init.learning_rate=1e-4",
        "init.seed=1",
        "learner.data_parallel=2",
        "learner.tokens_per_microbatch=512",
        "+rollout.engine_args.kv_cache_dtype=fp8",
        "drafter.vocab_size=32",
        "drafter.aux_layers=[0,1,2]",
        "drafter.training.loss=tv",
        "drafter.training.ttt_steps=1",
    ],
)
def test_what_makes_another_draft_is_in_its_key(cache: Path, override: str) -> None:
    assert key(cache, override) != key(cache)


def test_a_random_draft_is_one_that_fits_and_is_found_again(cache: Path) -> None:
    config = config_of(cache, "init=random")
    notes: list[str] = []
    folder = init(config, notes)
    check_folder(folder, prepare_model(config.model), (0, 2, 3))
    assert folder.parent == cache / "drafts"
    record = read_record(folder)
    assert record is not None
    assert (record.init, record.prompts, record.acceptance) == ("random", 8, ())
    again: list[str] = []
    assert init(config_of(cache, "init=random", "drafter.k=7"), again) == folder
    assert any(note.startswith("building") for note in notes)
    assert not any(note.startswith("building") for note in again)
    assert not list((cache / "drafts").glob(".*.work"))


def test_a_random_draft_knows_the_tokens_of_the_prompts_first(cache: Path) -> None:
    config = config_of(cache, "init=random", "drafter.vocab_size=24")
    task = build_task(config, prepare_model(config.model))
    counts = token_counts([p.token_ids for p in task.train(0, 8)], 128)
    d2t = load_file(init(config) / "model.safetensors")["d2t"]
    known = (d2t + torch.arange(24)).tolist()
    best = sorted(range(128), key=lambda token: (-counts[token], token))[:24]
    assert known == sorted(best)


@pytest.mark.parametrize("size", ["null", "4096"])
def test_the_whole_vocabulary_needs_no_map(cache: Path, size: str) -> None:
    folder = init(config_of(cache, "init=random", f"drafter.vocab_size={size}"))
    assert "d2t" not in load_file(folder / "model.safetensors")


def test_a_given_draft_is_checked_and_taken_over(cache: Path) -> None:
    given = init(config_of(cache, "init=random"))
    folder = init(config_of(cache, "init=checkpoint", f"init.path={given}"))
    ours, theirs = (load_file(f / "model.safetensors") for f in (folder, given))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert read_record(folder) is None


def damaged(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"short")


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("damage", "says"), [(damaged, "damaged"), (without_config, "config.json")]
)
def test_a_given_draft_that_cannot_be_used_is_named(
    cache: Path, tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for path in init(config_of(cache, "init=random")).glob("[cm]*"):
        (given / path.name).write_bytes(path.read_bytes())
    damage(given)
    with pytest.raises(UserError, match=says):
        init(config_of(cache, "init=checkpoint", f"init.path={given}"))


def test_a_given_draft_that_is_not_there_names_the_key(cache: Path) -> None:
    with pytest.raises(UserError, match=r"init\.path=\./nowhere"):
        init(config_of(cache, "init=checkpoint", "init.path=./nowhere"))


def test_a_draft_that_the_policy_cannot_have_is_refused_at_once(cache: Path) -> None:
    with pytest.raises(UserError, match=re.escape("drafter.aux_layers")):
        init(config_of(cache, "init=dapo", "drafter.aux_layers=[0,1,9]"))


def test_what_would_be_built_is_told_and_nothing_is_made(cache: Path, tmp_path: Path) -> None:
    (elsewhere,) = foreseen_draft(config_of(tmp_path, "init=random"))
    assert "8 prompts; to be built: model=tiny is not here" in elsewhere
    assert list(tmp_path.iterdir()) == []
    config = config_of(cache, "init=random", "init.seed=7")
    prepare_model(config.model)
    before = sorted(cache.rglob("*"))
    (missing,) = foreseen_draft(config)
    assert sorted(cache.rglob("*")) == before
    folder = init(config)
    assert missing == (
        "init=random for model=tiny: 8 prompts, 8 of the training prompts of arithmetic; to be "
        f"built: {folder}"
    )
    assert foreseen_draft(config)[0] == f"there already: {folder}"


def test_more_prompts_than_the_task_has_are_refused_at_once(cache: Path) -> None:
    config = config_of(cache, "init=dapo")
    config.init.num_prompts = 241  # as with a task whose size only its data tells
    says = r"init\.num_prompts=241 is more than the 240 training prompts of task=arithmetic"
    with pytest.raises(UserError, match=says):
        init(config)
    model = prepare_model(config.model)
    with pytest.raises(UserError, match=says):
        check_draft_init(config, model, build_task(config, model))


@dataclass(frozen=True)
class FakeProcesses(DraftProcesses):
    """An engine and a learner in memory; each start is an event."""

    faults: Faults = field(default_factory=Faults)
    events: list[str] = field(default_factory=list)

    @contextmanager
    def engine(self, work: Path) -> Iterator[FakeEngine]:
        del work
        self.events.append("engine")
        yield FakeEngine(self.events, self.faults, version=0)

    @contextmanager
    def learner(self, work: Path, fresh: Path) -> Iterator[FakeLearner]:
        del work
        check_folder(fresh, self.model, (0, 2, 3))
        self.events.append("learner")
        yield FakeLearner(self.events, self.faults, weight=8.0, draft_weight=0.0)


@dataclass
class Build:
    """One build on fakes after another, of the same config."""

    config: TrainConfig
    notes: list[str] = field(default_factory=list)

    def run(self, faults: Faults | None = None) -> tuple[Path, list[str]]:
        """The draft's folder and what was started for it."""
        model = prepare_model(self.config.model)
        processes = FakeProcesses(self.config, model, faults or Faults())
        telemetry = FakeTelemetry(notes=self.notes)
        task = build_task(self.config, model)
        return build_draft_init(self.config, model, task, telemetry, processes), processes.events


@pytest.fixture
def build(cache: Path, tmp_path: Path) -> Build:
    # 64 samples: a chunk is two prompts, the fit has several parts.
    config = config_of(cache, "init.num_prompts=6", "init.samples_per_prompt=64")
    config.drafter.training.tokens_per_update = 200
    model = prepare_model(config.model)
    config.model.cache_dir = str(tmp_path)
    shutil.copytree(model, tmp_path / model.name)
    return Build(config)


def test_a_build_starts_engine_and_learner_once_and_records_what_it_cost(build: Build) -> None:
    folder, events = build.run()
    assert [e for e in events if e in ("engine", "learner")] == ["engine", "learner"]
    record = read_record(folder)
    assert record is not None
    assert (record.prompts, record.responses, record.heldout_prompts) == (6, 384, 8)
    assert record.trained_tokens == record.response_tokens * build.config.init.passes
    assert len(record.acceptance) == 7
    assert record.acceptance[2] > record.acceptance_before[2]
    assert not list(folder.parent.glob(".*.work"))


def test_another_k_finds_the_build_and_starts_nothing(build: Build) -> None:
    folder, _ = build.run()
    build.config.drafter.k = 7
    assert build.run() == (folder, [])
    assert "k=7" in build.notes[-1]


@pytest.mark.parametrize(
    ("killed_at", "engine", "learner"),
    [
        (("generate", 0), True, True),
        (("generate", 3), True, True),
        (("capture", 0), False, True),
        (("fit_draft", 2), False, True),
    ],
)
def test_a_killed_build_goes_on_where_it_was(
    build: Build, killed_at: tuple[str, int], engine: bool, learner: bool
) -> None:
    with pytest.raises(EngineError):
        build.run(Faults({killed_at: EngineError("killed")}))
    faults = Faults()
    folder, events = build.run(faults)
    assert ("engine" in events, "learner" in events) == (engine, learner)
    done = killed_at[1] if killed_at[0] == "generate" else 4
    assert faults.seen.get("generate", 0) == 4 - done  # three chunks and the held-out one
    assert read_record(folder) is not None


def test_processes_that_need_the_same_draft_build_it_once(build: Build) -> None:
    waiting = threading.Event()
    results: list[tuple[Path, list[str]]] = []
    first = FakeTelemetry()

    class Slow(FakeProcesses):
        @contextmanager
        def engine(self, work: Path) -> Iterator[FakeEngine]:
            assert waiting.wait(30), "nobody waited"
            with super().engine(work) as engine:
                yield engine

    def build_slowly() -> None:
        model = prepare_model(build.config.model)
        processes = Slow(build.config, model)
        task = build_task(build.config, model)
        folder = build_draft_init(build.config, model, task, first, processes)
        results.append((folder, processes.events))

    class Impatient(FakeTelemetry):
        def note(self, message: str) -> None:
            super().note(message)
            if "waiting" in message:
                waiting.set()

    thread = threading.Thread(target=build_slowly)
    thread.start()
    while not any(note.startswith("building") for note in first.notes):
        time.sleep(0.01)
    model = prepare_model(build.config.model)
    second = FakeProcesses(build.config, model)
    task = build_task(build.config, model)
    folder = build_draft_init(build.config, model, task, Impatient(), second)
    thread.join()
    assert results[0][0] == folder
    assert "engine" in results[0][1]
    assert second.events == []


def test_fewer_prompts_than_asked_for_are_said_and_used(build: Build) -> None:
    build.config.init.name = "ultrachat"
    build.config.init.num_prompts = 100_000
    build.config.init.samples_per_prompt = 1
    folder, _ = build.run()
    assert any("specrl ships are only 4" in note for note in build.notes)
    record = read_record(folder)
    assert record is not None
    assert 400 <= record.prompts == record.responses < 500
    assert record.prompt_source == "the chat prompts that specrl ships"
