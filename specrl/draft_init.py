"""A draft's first weights: the fit to the policy's responses and its estimate."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from specrl.algo.replay import expected_counts
from specrl.checkpoint import CheckpointStore, RunState
from specrl.draft_record import with_lengths, written_lengths
from specrl.draft_responses import Watch, in_shards, response_tokens
from specrl.protocols import DraftLearner
from specrl.types import Metrics, Rollout

PART_TOKENS = 8192  # response tokens between two looks at the clock
FEWEST_PARTS = 32  # steps of the learning rate, as far as there are so many updates
SAVE_S = 60.0
SAY_S = 10.0
LOWEST_SHARE = 0.1  # of the peak learning rate, at the end of the cosine
_FIT_FILE = "fit.json"


@dataclass(frozen=True)
class FitPlan:
    """How a draft is fitted.

    The last `tv_share` of it lowers the rejection rate itself. `shard_tokens` is what the learner
    keeps hidden states of at once, `update_tokens` what one optimizer step takes (both over all
    ranks); `k` the longest draft of the acceptance estimate.
    """

    passes: int
    learning_rate: float
    warmup_share: float
    tv_share: float
    shard_tokens: int
    update_tokens: int
    k: int


@dataclass(frozen=True)
class FitState:
    """What a fit has done so far; the acceptance lengths are those of k = 1, 2, ..."""

    parts: int = 0
    seconds: float = 0.0
    tokens: int = 0
    loss: float = math.nan
    acceptance_before: tuple[float, ...] = ()
    acceptance: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Part:
    """Every `count`-th cached microbatch of a shard, from number `index` on."""

    shard: int
    index: int
    count: int


@dataclass
class _Pace:
    """Seconds since this process went on with a fit, by what they went into."""

    captures: int = 0
    capture_s: float = 0.0
    parts: int = 0
    fit_s: float = 0.0
    tokens: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Of the parts alone."""
        return self.tokens / max(self.fit_s, 1e-9)

    def left_s(self, captures: int, parts: int) -> float:
        """For so many more; a capture takes what the ones before it took."""
        capture_s = self.capture_s / self.captures if self.captures else 0.0
        return captures * capture_s + parts * self.fit_s / max(self.parts, 1)


@dataclass
class Fit:
    """Fits the learner's draft to responses, on from where `folder` has been left."""

    learner: DraftLearner
    responses: Sequence[Rollout]
    heldout: Sequence[Rollout]
    plan: FitPlan
    folder: Path
    watch: Watch
    _store: CheckpointStore = field(init=False)
    _captured: int | None = field(init=False, default=None)
    _pace: _Pace = field(init=False, default_factory=_Pace)

    def __post_init__(self) -> None:
        self._store = CheckpointStore(self.folder, keep=1, warn=self.watch.note)

    def run(self) -> FitState:
        """The finished fit. Raises KeyboardInterrupt after saving where a stop was asked for."""
        shards = in_shards(self.responses, self.plan.shard_tokens)
        parts = self._parts(shards)
        state = self._start()
        clock = self.watch.clock
        began = saved = said = clock()
        seconds_before = state.seconds
        for part in parts[state.parts :]:
            self._capture(shards, part.shard, state)
            metrics = self._fit(part, (state.parts + 0.5) / len(parts))
            now = clock()
            state = _advanced(state, metrics, seconds_before + now - began)
            if state.parts == len(parts) or now - said >= SAY_S:
                self.watch.note(self._progress_line(state, parts, metrics))
                said = now
            if state.parts == len(parts) or now - saved >= SAVE_S:
                self._save(state)
                saved = clock()
            self._pause(state)
        self.learner.forget_captured()
        return self._finished(state)

    def _fit(self, part: _Part, progress: float) -> Metrics:
        began = self.watch.clock()
        rate = self.plan.learning_rate * rate_share(progress, self.plan.warmup_share)
        loss = "tv" if progress > 1.0 - self.plan.tv_share else None
        metrics = self.learner.fit_draft(rate, part.index, part.count, loss)
        self._pace.fit_s += self.watch.clock() - began
        self._pace.parts += 1
        self._pace.tokens += metrics["tokens"]
        return metrics

    def _start(self) -> FitState:
        """The saved state, or a new one with the fresh draft's acceptance."""
        found = self._store.newest_or_afresh()
        if found is None:
            return FitState(acceptance_before=self._estimate("the fresh draft"))
        _, folder = found
        saved = json.loads((folder / _FIT_FILE).read_text())
        self.learner.load_draft(folder)
        self.watch.note(f"going on with the fit after part {saved['parts']}")
        return FitState(**with_lengths(saved))

    def _finished(self, state: FitState) -> FitState:
        if state.acceptance:
            return state
        state = replace(state, acceptance=self._estimate("the fitted draft"))
        self._save(state)
        return state

    def _estimate(self, whose: str) -> tuple[float, ...]:
        lengths = acceptance_lengths(self.learner, self.heldout, self.plan.k)
        self.watch.note(f"held-out acceptance length of {whose}: {written_lengths(lengths)}")
        return lengths

    def _save(self, state: FitState) -> None:
        def write(folder: Path) -> None:
            self.learner.save_draft(folder)
            (folder / _FIT_FILE).write_text(json.dumps(asdict(state)))

        self._store.save(RunState(step=state.parts), write)

    def _pause(self, state: FitState) -> None:
        """Saves and raises KeyboardInterrupt where a stop was asked for."""
        if self.watch.stop():
            self._save(state)
        self.watch.pause()

    def _capture(self, shards: Sequence[Sequence[Rollout]], shard: int, state: FitState) -> None:
        if self._captured == shard:
            return
        self.learner.forget_captured()
        total = response_tokens(shards[shard])
        began = said = self.watch.clock()
        for portion in in_shards(shards[shard], PART_TOKENS):
            captured = self.learner.capture(portion)
            self._pause(state)
            if self.watch.clock() - said >= SAY_S:
                said = self.watch.clock()
                self.watch.note(f"hidden states of {captured} of {total} response tokens")
        self._captured = shard
        self._pace.captures += 1
        self._pace.capture_s += self.watch.clock() - began

    def _progress_line(self, state: FitState, parts: Sequence[_Part], metrics: Metrics) -> str:
        accepted = [v for name, v in metrics.items() if name.startswith("expected_accepted_pos_")]
        left = [part.shard for part in parts[state.parts - 1 :]]
        captures = sum(before != after for before, after in pairwise(left))
        return "  ".join(
            [
                f"draft fit {state.parts}/{len(parts)}",
                f"loss {state.loss:.3f}",
                f"expected acceptance {1 + sum(accepted):.2f}",
                f"{self._pace.tokens_per_s:.0f} tok/s",
                f"ETA {self._pace.left_s(captures, len(parts) - state.parts):.0f} s",
            ]
        )

    def _parts(self, shards: Sequence[Sequence[Rollout]]) -> list[_Part]:
        """Equal shares of each shard, as many passes as planned."""
        trained = self.plan.passes * response_tokens(self.responses)
        size = max(self.plan.update_tokens, min(PART_TOKENS, trained // FEWEST_PARTS))
        counts = [max(1, round(response_tokens(shard) / size)) for shard in shards]
        return [
            _Part(shard, index, count)
            for _ in range(self.plan.passes)
            for shard, count in enumerate(counts)
            for index in range(count)
        ]


def acceptance_lengths(
    learner: DraftLearner, rollouts: Sequence[Rollout], k: int
) -> tuple[float, ...]:
    """Expected acceptance length with drafts of 1, 2, ... k tokens; 1.0 where nothing is drafted.

    Replayed on the policy's own responses, weighted by tokens, bonus token included.
    """
    kept = learner.replay_draft(rollouts, k)
    lengths = (expected_counts(kept, drafted).acceptance_length for drafted in range(1, k + 1))
    return tuple(1.0 if length is None else length for length in lengths)


def rate_share(progress: float, warmup_share: float) -> float:
    """Learning rate over its peak at `progress` (0..1): linear up, then a cosine to a tenth."""
    if progress < warmup_share:
        return progress / warmup_share
    if warmup_share >= 1.0:
        return 1.0
    along = (progress - warmup_share) / (1.0 - warmup_share)
    return LOWEST_SHARE + (1.0 - LOWEST_SHARE) * 0.5 * (1.0 + math.cos(math.pi * along))


def _advanced(state: FitState, metrics: Metrics, seconds: float) -> FitState:
    tokens = int(metrics["tokens"])
    return replace(
        state,
        parts=state.parts + 1,
        seconds=seconds,
        tokens=state.tokens + tokens,
        loss=metrics["loss"] if tokens else state.loss,
    )
