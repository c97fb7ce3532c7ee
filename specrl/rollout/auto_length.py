"""drafter.k=auto: before each generate call the draft length per batch size is chosen anew."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from specrl.algo.draft_length import (
    KEPT_BY_CALL,
    KEPT_BY_PROBE,
    AcceptanceCounts,
    Choice,
    Schedule,
    StepCosts,
    choose_lengths,
)
from specrl.protocols import OnProgress, RolloutEngine
from specrl.rollout.wrapped import WrappedEngine
from specrl.types import Metrics, Prompt, Rollout, Sampling

PROMISED_DRAFTS = 50.0
"""What the init's held-out estimate weighs against counts of rollouts, in drafts."""

FIRST_PROBE = (4, 128)
LATER_PROBE = (2, 64)
"""Prompts and most tokens of a probe; the first one decides, the later ones notice changes."""

PROBE_SHARE = 0.01
"""Most of the generation time that goes into probes after the first one."""


class AutoLengthEngine(WrappedEngine):
    """`RolloutEngine` round another one whose drafter proposes up to `longest` tokens.

    Chooses from `costs` and from the acceptance and the response lengths of its own rollouts, per
    number of responses in a call. What the schedule does not draft is learned from probes: short
    extra calls at the longest draft, whose responses are thrown away. The first one comes before
    the first call unless `promised` (rates of acceptance up to each position, from the draft's
    init) stands in for it; later ones when all of them take no more than `PROBE_SHARE` of the
    time. A call of `set_draft_lengths` ends the choosing: that schedule stays. A resumed run learns
    anew. Responses are spread evenly over `replicas`. Times decide when to probe and what to draft,
    so that calls with equal seeds need not draw equal responses, as they do at a fixed length.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        costs: StepCosts,
        longest: int,
        note: Callable[[str], None],
        promised: Sequence[float] | None = None,
        replicas: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(engine)
        self._costs = costs
        self._longest = min(longest, costs.lengths[-1])
        self._note = note
        self._replicas = replicas
        self._clock = clock
        self._response_tokens: dict[int, list[int]] = {}
        self._choices: dict[int, Choice] = {}
        self._counts = AcceptanceCounts()
        if promised is not None:
            self._counts = AcceptanceCounts.promised(promised, PROMISED_DRAFTS)
        self._informed = promised is not None
        self._choice: Choice | None = None
        self._pinned: Schedule | None = None
        self._generated_s = 0.0
        self._first_probe_s = 0.0
        self._probe_s = 0.0
        self._probed_s = 0.0

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples_per_prompt: int,
        sampling: Sampling,
        on_progress: OnProgress | None = None,
    ) -> list[Rollout]:
        if self._pinned is not None:
            return self._engine.generate(prompts, samples_per_prompt, sampling, on_progress)
        if self._probe_due():
            self._probe(prompts, sampling)
        count = len(prompts) * samples_per_prompt
        schedule = self._choose(count)
        began = self._clock()
        rollouts = self._engine.generate(prompts, samples_per_prompt, sampling, on_progress)
        self._generated_s += self._clock() - began
        self._response_tokens[count] = [len(rollout.token_ids) for rollout in rollouts]
        self._learn(rollouts, schedule[0][1] if len(schedule) == 1 else None)
        return rollouts

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        """Sets the schedule for good."""
        self._engine.set_draft_lengths(schedule)
        self._pinned = tuple(schedule)

    def metrics(self) -> Metrics:
        """`spec/schedule/<batch>` and the speedup predicted for it, besides the engine's own."""
        own: dict[str, float] = {"spec/probe_s": self._first_probe_s + self._probed_s}
        if self._pinned is not None:
            own |= {f"spec/schedule/{_name(batch)}": float(k) for batch, k in self._pinned}
        elif self._choice is not None:
            choice = self._choice
            own["spec/predicted_speedup/call"] = choice.speedup
            for batch, k, gain in zip(choice.batches, choice.lengths, choice.speedups, strict=True):
                own[f"spec/schedule/{_name(batch)}"] = float(k)
                own[f"spec/predicted_speedup/{_name(batch)}"] = gain
        return {**self._engine.metrics(), **own}

    def _choose(self, count: int) -> Schedule:
        before = self._choices.get(count)
        tokens = self._response_tokens.get(count, [1] * count)
        own = sorted(tokens)[:: self._replicas]
        choice = choose_lengths(self._costs, self._counts, self._longest, own, before)
        self._choice = self._choices[count] = choice
        schedule = choice.schedule
        if len(own) > choice.batches[-1] and choice.lengths[-1] > 0:
            # Of more requests than were measured nobody knows what would speed them up.
            schedule = (*schedule, (choice.batches[-1] + 1, 0))
        self._engine.set_draft_lengths(schedule)
        if before is None or before.lengths != choice.lengths:
            self._note(f"drafter.k=auto for {count} responses: {described(choice)}")
        return schedule

    def _probe_due(self) -> bool:
        if not self._informed:
            return True
        chosen = max(self._choice.lengths) if self._choice is not None else self._longest
        afterwards_s = self._probed_s + self._probe_s
        return chosen < self._longest and afterwards_s <= PROBE_SHARE * self._generated_s

    def _probe(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        most, tokens = LATER_PROBE if self._informed else FIRST_PROBE
        prompts, tokens = prompts[:most], min(tokens, sampling.max_tokens)
        self._engine.set_draft_lengths(((1, self._longest),))
        began = self._clock()
        rollouts = self._engine.generate(prompts, 1, replace(sampling, max_tokens=tokens))
        self._probe_s = self._clock() - began
        if self._informed:
            self._probed_s += self._probe_s
        else:
            self._first_probe_s = self._probe_s
            self._probe_s *= LATER_PROBE[1] / FIRST_PROBE[1]  # what the next one is to take
            self._note(
                f"drafter.k=auto: a probe of {len(prompts)} responses at k={self._longest} took "
                f"{self._first_probe_s:.1f} s"
            )
        self._informed = True
        self._learn(rollouts, self._longest, KEPT_BY_PROBE)

    def _learn(
        self, rollouts: Sequence[Rollout], scheduled: int | None, kept: float = KEPT_BY_CALL
    ) -> None:
        steps = [rollout.draft_steps for rollout in rollouts]
        self._counts = self._counts.with_call(steps, scheduled, kept)


def described(choice: Choice) -> str:
    """ "k=3 up to 8 running (1.31x), k=0 up to 64 running (0.97x), 1.08x in all", predicted."""
    gains = dict(zip(choice.batches, choice.speedups, strict=True))
    parts = [f"k={k} up to {most} running ({gains[most]:.2f}x)" for most, k in choice.schedule]
    return ", ".join([*parts, f"{choice.speedup:.2f}x in all"])


def _name(batch: int) -> str:
    """Sorts as the numbers do."""
    return f"{batch:04d}"
