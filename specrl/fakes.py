"""Every noun in memory: the loop's tests and new ideas need neither Ray nor torch."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from specrl.errors import ActorDied, EngineError
from specrl.protocols import OnProgress
from specrl.types import (
    DraftWeights,
    Float32,
    GenerationProgress,
    Metrics,
    Placement,
    Prompt,
    Rollout,
    Sampling,
    SpecStats,
    TokenLogprobs,
    TrainSample,
    WeightSnapshot,
)

Events = list[str]


@dataclass
class Faults:
    """What goes wrong: `at[event, n]` is raised at occurrence n of the event, from 0."""

    at: dict[tuple[str, int], BaseException] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def check(self, event: str) -> None:
        """Raises what was planned for this occurrence of `event`."""
        count = self.seen.get(event, 0)
        self.seen[event] = count + 1
        if (event, count) in self.at:
            raise self.at[event, count]


@dataclass
class FakeTask:
    """Prompt n asks for the number n; a response is right when its text says so."""

    events: Events = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    name: str = "fake"

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        self.faults.check("train")
        self.events.append(f"prompts from {cursor}")
        return [_prompt("train", n) for n in range(cursor, cursor + num_prompts)]

    def validation(self, num_prompts: int) -> list[Prompt]:
        return [_prompt("validation", n) for n in range(num_prompts)]

    def rewards(self, rollouts: Sequence[Rollout]) -> list[float]:
        self.faults.check("rewards")
        self.events.append("rewards")
        return [float(r.text == str(r.prompt.reference["answer"])) for r in rollouts]

    def close(self) -> None:
        self.events.append("task closed")


@dataclass
class FakeEngine:
    """Draws a right answer with probability one half, from the sampling seed alone.

    `live` is the snapshot last loaded, `draft_lengths` the schedule last set.
    """

    events: Events = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    version: int | None = None
    k: int = 2
    live: WeightSnapshot | None = None
    draft_lengths: tuple[tuple[int, int], ...] = ()

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples_per_prompt: int,
        sampling: Sampling,
        on_progress: OnProgress | None = None,
    ) -> list[Rollout]:
        if self.version is None:
            raise EngineError("no version is live")
        self.faults.check("generate")
        self.events.append(f"generate with version {self.version}")
        generator = np.random.default_rng(sampling.seed)
        rollouts = [
            self._rollout(prompt, group, sample, generator, sampling.max_tokens, self.version)
            for group, prompt in enumerate(prompts)
            for sample in range(samples_per_prompt)
        ]
        if on_progress is not None:
            tokens = sum(len(r.token_ids) for r in rollouts)
            on_progress(GenerationProgress(len(rollouts), len(rollouts), tokens, 1.0, 2.0))
        return rollouts

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        self.faults.check("load_weights")
        self.version = snapshot.version
        self.live = snapshot

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        self.faults.check("set_draft_lengths")
        self.draft_lengths = tuple(schedule)

    def metrics(self) -> Metrics:
        return {}

    def close(self) -> None:
        self.events.append("engine closed")

    def _rollout(
        self,
        prompt: Prompt,
        group: int,
        sample: int,
        generator: np.random.Generator,
        max_tokens: int,
        version: int,
    ) -> Rollout:
        right = bool(generator.integers(2))
        length = int(generator.integers(1, max_tokens + 1))
        return Rollout(
            prompt=prompt,
            group=group,
            sample=sample,
            token_ids=tuple(int(t) for t in generator.integers(0, 100, length)),
            rollout_logprobs=np.full(length, -1.0, np.float32),
            text=str(prompt.reference.get("answer")) if right else "no idea",
            finish_reason="stop",
            versions=(version,),
            spec=SpecStats(1, (1,) * self.k, (1,) + (0,) * (self.k - 1), 1, 2),
            latency_s=0.5,
        )


@dataclass
class FakeLearner:
    """One weight, moved by the mean advantage-weighted length: deterministic, resumable.

    `draft_weight` is a learned draft, pulled half-way to the weight by each training of it; None is
    no draft. `captured` are the responses in the cache.
    """

    events: Events = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    weight: float = 0.0
    draft_weight: float | None = None
    captured: list[Rollout] = field(default_factory=list)

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[TokenLogprobs]:
        self.faults.check("logprobs")
        self.events.append("logprobs")
        return [
            TokenLogprobs(r.rollout_logprobs, None, np.ones_like(r.rollout_logprobs))
            for r in rollouts
        ]

    def step(self, samples: Sequence[TrainSample]) -> Metrics:
        self.faults.check("step")
        self.events.append("step")
        self.weight += float(np.mean([s.advantage * len(s.response_ids) for s in samples]))
        return {"loss": self.weight}

    def step_draft(self) -> Metrics:
        self.faults.check("step_draft")
        self.events.append("step draft")
        return {} if self.draft_weight is None else self._pull_draft()

    def capture(self, rollouts: Sequence[Rollout]) -> int:
        self.faults.check("capture")
        self.events.append("capture")
        self.captured += rollouts
        return sum(len(rollout.token_ids) for rollout in self.captured)

    def fit_draft(
        self, learning_rate: float, part: int = 0, parts: int = 1, loss: str | None = None
    ) -> Metrics:
        self.faults.check("fit_draft")
        by = f" by {loss}" if loss else ""
        self.events.append(f"fit draft on part {part} of {parts}{by}")
        tokens = sum(len(rollout.token_ids) for rollout in self.captured[part::parts])
        return {**self._pull_draft(), "lr": learning_rate, "tokens": float(tokens)}

    def forget_captured(self) -> None:
        self.captured = []

    def replay_draft(self, rollouts: Sequence[Rollout], k: int) -> list[Float32]:
        closeness = np.float32(1.0 / (1.0 + abs(self._draft() - self.weight)))
        return [np.full((len(r.token_ids), k), closeness, np.float32) for r in rollouts]

    def save_draft(self, folder: Path) -> None:
        self.faults.check("save_draft")
        (folder / "draft.json").write_text(json.dumps(self._draft()))

    def load_draft(self, folder: Path) -> None:
        self.draft_weight = json.loads((folder / "draft.json").read_text())

    def export_draft(self, folder: Path) -> None:
        (folder / "model.safetensors").write_text(json.dumps(self._draft()))

    def export_weights(self, folder: Path, version: int) -> WeightSnapshot:
        self.faults.check("export_weights")
        path = folder / f"policy-v{version}.safetensors"
        path.write_text(json.dumps(self.weight))
        draft = None
        if self.draft_weight is not None:
            draft = DraftWeights(path.with_name(f"draft-v{version}.safetensors"), {"weight": "0"})
            draft.path.write_text(json.dumps(self.draft_weight))
        return WeightSnapshot(version, path, {"weight": str(self.weight)}, draft)

    def save(self, folder: Path) -> None:
        self.faults.check("save")
        (folder / "learner.json").write_text(json.dumps([self.weight, self.draft_weight]))

    def load(self, folder: Path) -> None:
        self.weight, self.draft_weight = json.loads((folder / "learner.json").read_text())

    def _draft(self) -> float:
        assert self.draft_weight is not None, "this learner has no draft"
        return self.draft_weight

    def _pull_draft(self) -> Metrics:
        gap = self.weight - self._draft()
        self.draft_weight = self._draft() + gap / 2
        return {"loss": abs(gap), "staleness_steps": 0.0}


@dataclass
class FakeTelemetry:
    """Keeps what it is told."""

    events: Events = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    status: str | None = None
    run_id: str | None = "fake-run"

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        self.events.append(f"[{name}")
        yield
        self.events.append(f"{name}]")

    def progress(self, label: str) -> OnProgress:
        return lambda moment: self.notes.append(f"{label}: {moment.finished}/{moment.total}")

    def log(self, step: int, metrics: Metrics) -> None:
        self.faults.check("log")
        assert step not in self.steps, f"step {step} logged twice"
        self.steps[step] = dict(metrics)

    def note(self, message: str) -> None:
        self.notes.append(message)

    def finish(self, status: str) -> None:
        self.status = status


@dataclass
class InProcessActor:
    """Calls the object directly; after `kill` every call raises `ActorDied`."""

    name: str
    target: Any
    alive: bool = True

    def submit(self, method: str, *args: Any, **kwargs: Any) -> "Lazy":
        def call() -> Any:
            if not self.alive:
                raise ActorDied(f"{self.name} died")
            return getattr(self.target, method)(*args, **kwargs)

        return Lazy(call)

    def kill(self) -> None:
        self.alive = False


@dataclass
class Lazy:
    """A `Future` that works when asked."""

    call: Callable[[], Any]

    def result(self) -> Any:
        return self.call()


@dataclass
class InProcessCluster:
    """Implements `Cluster` without processes."""

    actors: list[InProcessActor] = field(default_factory=list)

    def spawn(self, name: str, target: str, placement: Placement, *args: Any) -> InProcessActor:
        del placement
        module, _, attribute = target.partition(":")
        actor = InProcessActor(name, getattr(import_module(module), attribute)(*args))
        self.actors.append(actor)
        return actor

    def cores(self, node: int) -> list[int]:
        del node
        return [0]

    def close(self) -> None:
        for actor in self.actors:
            actor.kill()


def _prompt(split: str, number: int) -> Prompt:
    return Prompt(f"fake/{split}/{number}", f"say {number}", (1, 2, number), {"answer": number})
