"""The health gate: an engine whose draft is judged after each generate call."""

from collections.abc import Callable, Sequence

from specrl.algo.acceptance import total
from specrl.algo.health import DraftHealth, judge
from specrl.config.drafter import DraftHealthConfig
from specrl.errors import EngineError
from specrl.protocols import OnProgress, RolloutEngine
from specrl.rollout.wrapped import WrappedEngine
from specrl.types import Metrics, Prompt, Rollout, Sampling

AUTOREGRESSIVE = ((1, 0),)


class WatchedEngine(WrappedEngine):
    """`RolloutEngine` round another one; `note` takes a line for the reader.

    When acceptance at position 0 collapses, `on_collapse` decides: `fail` raises `EngineError` from
    `generate`, upon which the loop saves the steps already done; `warn` notes it, once per
    collapse; `disable` notes it and decodes autoregressively from then on, whatever is asked of
    `set_draft_lengths` later. `expected` is position-0 acceptance on held-out prompts, None where
    the draft's init has none (random). Nothing is saved: a resumed run hands in its `history`
    (acceptance of the steps before) or starts watching anew.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        health: DraftHealthConfig,
        on_collapse: str,
        note: Callable[[str], None],
        expected: float | None = None,
        history: Sequence[float] = (),
    ) -> None:
        super().__init__(engine)
        self._config = health
        self._on_collapse = on_collapse
        self._note = note
        self._health = DraftHealth.known(health, expected, history)
        self._collapsed = False
        self._disabled = False

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples_per_prompt: int,
        sampling: Sampling,
        on_progress: OnProgress | None = None,
    ) -> list[Rollout]:
        """The engine's rollouts. Raises `EngineError` for a collapsed draft, if that is to fail."""
        rollouts = self._engine.generate(prompts, samples_per_prompt, sampling, on_progress)
        if not self._disabled:
            self._watch(rollouts, sampled=sampling.temperature > 0)
        return rollouts

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        if not self._disabled:
            self._engine.set_draft_lengths(schedule)

    def metrics(self) -> Metrics:
        """The engine's own and `spec/draft_collapsed`, 1 while the draft counts as collapsed."""
        return {**self._engine.metrics(), "spec/draft_collapsed": float(self._collapsed)}

    def _watch(self, rollouts: Sequence[Rollout], sampled: bool) -> None:
        counts = total(r.spec for r in rollouts if r.spec is not None)
        drafted, accepted = sum(counts.num_draft_tokens[:1]), sum(counts.num_accepted_tokens[:1])
        self._health, fault, judged = judge(self._health, drafted, accepted, self._config, sampled)
        if not judged:
            return
        again, self._collapsed = self._collapsed, fault is not None
        if fault is not None:
            self._act(fault, again)

    def _act(self, fault: str, again: bool) -> None:
        evidence = f"the draft of policy version {self.version} has collapsed: {fault}"
        if self._on_collapse == "fail":
            raise EngineError(f"{evidence}; drafter.on_collapse=warn or disable would go on")
        if self._on_collapse == "disable":
            self._engine.set_draft_lengths(AUTOREGRESSIVE)
            self._disabled = True
            self._note(f"{evidence}; decoding autoregressively from now on")
        elif not again:
            self._note(f"{evidence}; going on as drafter.on_collapse=warn says")
