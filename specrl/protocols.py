"""The seven nouns of specrl. Nothing else is swappable."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from specrl.types import (
    DraftSetup,
    Float32,
    GenerationProgress,
    Metrics,
    Placement,
    Prompt,
    Rollout,
    Sampling,
    TokenLogprobs,
    TrainSample,
    WeightSnapshot,
)

OnProgress = Callable[[GenerationProgress], None]


class Task(Protocol):
    """Prompts and rewards. `train` is pure in `cursor`: resuming needs no other state."""

    name: str

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        """Prompts cursor .. cursor + num_prompts - 1 of the shuffled, endless training stream."""
        ...

    def validation(self, num_prompts: int) -> list[Prompt]:
        """The first validation prompts, or all there are; none is a training prompt."""
        ...

    def rewards(self, rollouts: Sequence[Rollout]) -> list[float]:
        """One reward in [0, 1] per rollout. Malformed responses score 0, they never raise."""
        ...

    def close(self) -> None: ...


class RolloutEngine(Protocol):
    """Prompts to rollouts."""

    @property
    def version(self) -> int | None:
        """Version of the live weights; None until the first successful `load_weights`."""
        ...

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples_per_prompt: int,
        sampling: Sampling,
        on_progress: OnProgress | None = None,
    ) -> list[Rollout]:
        """Rollouts in order of (prompt, sample).

        Raises `specrl.errors.EngineError` when no verified version is live.
        """
        ...

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Makes `snapshot` live on every replica.

        Raises `specrl.errors.PublishError` with the old version still live.
        """
        ...

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        """Draft length by concurrency, from the next step on.

        `schedule` are (largest number of running requests, k) in ascending order, the last one
        also for more; k = 0 decodes autoregressively, and no k is above the drafter's own.
        """
        ...

    def metrics(self) -> Metrics:
        """`spec/*` of the last `generate` that its rollouts do not tell; {} if none."""
        ...

    def close(self) -> None: ...


class Learner(Protocol):
    """Batch to log-probs and policy update, and the training of a learned draft beside it."""

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[TokenLogprobs]:
        """Log-probs of the response tokens at the rollout temperature, in the order given."""
        ...

    def step(self, samples: Sequence[TrainSample]) -> Metrics:
        """One pass over the samples.

        Raises `specrl.errors.NonFiniteError` before weights change to NaN or inf.
        """
        ...

    def step_draft(self) -> Metrics:
        """Trains the draft on the hidden states of the last `step`; {} without a learned draft.

        Only its `staleness_steps`, RL steps since it last changed, where no training is due.
        """
        ...

    def export_weights(self, folder: Path, version: int) -> WeightSnapshot:
        """Writes policy and draft weights (serving dtype) to safetensors files in `folder`."""
        ...

    def save(self, folder: Path) -> None:
        """Writes weights, optimizers and RNG into the existing empty `folder`.

        The draft besides as a Hugging Face folder `draft/`.
        """
        ...

    def load(self, folder: Path) -> None: ...


class DraftLearner(Protocol):
    """Training a draft outside RL, on responses the policy has given."""

    def capture(self, rollouts: Sequence[Rollout]) -> int:
        """Adds the hidden states of a policy forward to the cache.

        Returns the response tokens now in it, of the data-parallel rank that has most.
        """
        ...

    def fit_draft(
        self, learning_rate: float, part: int = 0, parts: int = 1, loss: str | None = None
    ) -> Metrics:
        """One pass over every `parts`-th cached microbatch from number `part` on; cache kept.

        `loss` stands in for the configured one.
        """
        ...

    def forget_captured(self) -> None:
        """Empties the cache."""
        ...

    def replay_draft(self, rollouts: Sequence[Rollout], k: int) -> list[Float32]:
        """Per rollout [T, k]; see `hidden_states.DraftTrainer.replay`."""
        ...

    def save_draft(self, folder: Path) -> None:
        """Draft, optimizer and counters into the existing `folder`."""
        ...

    def load_draft(self, folder: Path) -> None: ...

    def export_draft(self, folder: Path) -> None:
        """A Hugging Face folder that vLLM loads as it is."""
        ...


class Drafter(Protocol):
    """What the engine drafts with, and the draft that specrl trains if it is a learned one."""

    name: str
    k: int

    def speculative_config(self) -> Mapping[str, Any] | None:
        """vLLM's `speculative_config`; None for autoregressive decoding."""
        ...

    def draft_setup(self) -> DraftSetup | None:
        """What the learner trains; None where nothing learns."""
        ...


class WeightSync(Protocol):
    """Learner weights to live engine weights, together, under one version."""

    def publish(self, version: int) -> None:
        """Raises `specrl.errors.PublishError` with the old version still live."""
        ...

    def close(self) -> None: ...


class Telemetry(Protocol):
    """Spans and metrics of one run. Never raises because a server is slow or gone."""

    @property
    def run_id(self) -> str | None:
        """The tracking server's id of this run, kept in the checkpoint; None without a server."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Times a stage of the step as `time/<name>_s`; spans of one name add up within a step."""
        ...

    def progress(self, label: str) -> OnProgress:
        """A progress line for one generate call."""
        ...

    def log(self, step: int, metrics: Metrics) -> None:
        """Closes the step: adds its spans and `time/step_s`, writes to every sink."""
        ...

    def note(self, message: str) -> None:
        """A line for the reader (warnings, checkpoints) in console and log."""
        ...

    def finish(self, status: str) -> None:
        """Flushes and prints the summary.

        `status` is "finished", "interrupted" or "failed: <reason>".
        """
        ...


class Future(Protocol):
    def result(self) -> Any:
        """Waits. Raises what the method raised, or `specrl.errors.ActorDied`."""
        ...


class Actor(Protocol):
    """One object in a process of its own."""

    name: str

    def submit(self, method: str, *args: Any, **kwargs: Any) -> Future: ...

    def kill(self) -> None: ...


class Cluster(Protocol):
    """Where actors run."""

    def spawn(self, name: str, target: str, placement: Placement, *args: Any) -> Actor:
        """Starts `target` ("package.module:Class") with `args`.

        What its constructor raises, the first result raises.
        """
        ...

    def cores(self, node: int) -> list[int]:
        """CPU ids that a process on `node` (see `Placement`) may use, ascending."""
        ...

    def close(self) -> None:
        """Kills every actor spawned here; safe to call twice."""
        ...
