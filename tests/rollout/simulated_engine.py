"""An engine in memory whose steps cost what a table says and whose drafts fit at a given rate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specrl.protocols import OnProgress
from specrl.rollout.spec_counts import spec_stats
from specrl.types import Metrics, Prompt, Rollout, Sampling, WeightSnapshot

Cost = Callable[[int, int], float]


@dataclass
class SimulatedEngine:
    """Lengths spread evenly up to `max_tokens`, or few long ones as `tail` > 1; has its own clock.

    `rate` is the chance that a draft position is accepted, `proposed` that there is a draft. A step
    without drafts costs `following` times as much while the schedule drafts elsewhere.
    """

    cost_s: Cost
    longest: int = 7
    rate: float = 0.6
    proposed: float = 1.0
    following: float = 1.04
    tail: float = 1.0
    version: int | None = 0
    schedule: tuple[tuple[int, int], ...] = ((1, 0),)
    schedules: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    now_s: float = 0.0
    calls: list[tuple[int, float]] = field(default_factory=list)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples_per_prompt: int,
        sampling: Sampling,
        on_progress: OnProgress | None = None,
    ) -> list[Rollout]:
        del on_progress
        began_s, count = self.now_s, len(prompts) * samples_per_prompt
        shares = 0.1 + 0.9 * ((np.arange(count) + 0.5) / count) ** self.tail
        wanted = np.ceil(shares * sampling.max_tokens).astype(np.int64)
        made = np.ones(count, np.int64)  # the first token is prefill's
        steps: list[list[tuple[int, int]]] = [[(0, 0)] for _ in range(count)]
        while (running := np.flatnonzero(made < wanted)).size:
            k = self.length_at(len(running))
            follows = k == 0 and any(length for _, length in self.schedule)
            self.now_s += self.cost_s(k, len(running)) * (self.following if follows else 1.0)
            drafted = k * (self.generator.random(len(running)) < self.proposed)
            kept = np.minimum(self.generator.geometric(1 - self.rate, len(running)) - 1, drafted)
            room = wanted[running] - made[running]
            drafted, kept = np.where(kept < room, (drafted, kept), room - 1)
            made[running] += kept + 1
            for number, *step in zip(running, drafted.tolist(), kept.tolist(), strict=True):
                steps[number].append(tuple(step))
        self.calls.append((count, self.now_s - began_s))
        return [
            self._rollout(prompts[n // samples_per_prompt], n, samples_per_prompt, steps[n])
            for n in range(count)
        ]

    def length_at(self, running: int) -> int:
        fitting = (k for largest, k in self.schedule if running <= largest)
        return next(fitting, self.schedule[-1][1])

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        self.version = snapshot.version

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        assert list(schedule) == sorted(schedule)
        assert all(0 <= k <= self.longest for _, k in schedule)
        self.schedule = tuple(schedule)
        self.schedules.append(self.schedule)

    def metrics(self) -> Metrics:
        return {}

    def close(self) -> None: ...

    def _rollout(
        self, prompt: Prompt, number: int, samples: int, steps: list[tuple[int, int]]
    ) -> Rollout:
        assert self.version is not None
        length = sum(1 + accepted for _, accepted in steps)
        return Rollout(
            prompt=prompt,
            group=number // samples,
            sample=number % samples,
            token_ids=(0,) * length,
            rollout_logprobs=np.zeros(length, np.float32),
            text="",
            finish_reason="length",
            versions=(self.version,),
            spec=spec_stats(tuple(steps), length, self.longest),
            latency_s=0.0,
            draft_steps=tuple(steps),
        )
