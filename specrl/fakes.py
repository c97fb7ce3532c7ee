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
    """Draws a right answer with probability one half, from the sampling seed alone."""

    events: Events = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    version: int | None = None
    k: int = 2

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
            text=str(prompt.reference["answer"]) if right else "no idea",
            finish_reason="stop",
            versions=(version,),
            spec=SpecStats(1, (1,) * self.k, (1,) + (0,) * (self.k - 1), 1, 2),
            latency_s=0.5,
        )


@dataclass
class FakeLearner:
    """One weight, moved by the mean advantage-weighted length: deterministic, resumable."""

    events: Events = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    weight: float = 0.0

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[TokenLogprobs]:
        self.faults.check("logprobs")
        self.events.append("logprobs")
        return [TokenLogprobs(policy=r.rollout_logprobs) for r in rollouts]

    def step(self, samples: Sequence[TrainSample]) -> Metrics:
        self.faults.check("step")
        self.events.append("step")
        self.weight += float(np.mean([s.advantage * len(s.response_ids) for s in samples]))
        return {"loss": self.weight}

    def export_weights(self, folder: Path, version: int) -> WeightSnapshot:
        self.faults.check("export_weights")
        path = folder / f"policy-v{version}.safetensors"
        path.write_text(json.dumps(self.weight))
        return WeightSnapshot(version=version, path=path, checksums={"weight": str(self.weight)})

    def save(self, folder: Path) -> None:
        self.faults.check("save")
        (folder / "learner.json").write_text(json.dumps(self.weight))

    def load(self, folder: Path) -> None:
        self.weight = json.loads((folder / "learner.json").read_text())


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

    def close(self) -> None:
        for actor in self.actors:
            actor.kill()


def _prompt(split: str, number: int) -> Prompt:
    return Prompt(f"fake/{split}/{number}", f"say {number}", (1, 2, number), {"answer": number})
