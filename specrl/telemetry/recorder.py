"""Times the stages of a step and hands closed steps to the sinks."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from specrl.algo.comparison import STAGES
from specrl.protocols import OnProgress
from specrl.telemetry.sink import Sink
from specrl.types import GenerationProgress, Metrics

ASIDES = ("evaluation", "checkpoint")

logger = logging.getLogger(__name__)


class Recorder:
    """`specrl.protocols.Telemetry` over sinks, which are started in the order given.

    `time/step_s` runs from the previous `log` (for the first step: the first span) to `log`, so it
    also holds what the sinks took for the step before. The top-level spans named in ASIDES are no
    part of an RL step: they are recorded as `time/<name>_s` and taken off.
    `time/overhead_s` is `time/step_s` minus the five STAGES; a record without any of them has
    neither. A stage's metric holds top-level time only: a stage name inside another span is
    recorded as `time/<outer>_<name>_s`. Spans are opened by one thread.
    """

    def __init__(
        self, sinks: Sequence[Sink], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sinks = list(sinks)
        self._clock = clock
        self._open: list[str] = []
        self._spans_s: dict[str, float] = {}
        self._aside_s = 0.0
        self._step_began: float | None = None
        self._finished = False
        self._carried: dict[str, float] = {}
        for sink in self._sinks:
            sink.start()

    @property
    def run_id(self) -> str | None:
        """Known once the tracking server has answered; None until then and without a server."""
        return next((sink.run_id for sink in self._sinks if sink.run_id is not None), None)

    def span(self, name: str) -> AbstractContextManager[None]:
        """Times the block, also when it raises."""
        return self._timed(name)

    def progress(self, label: str) -> OnProgress:
        """Shows one generate call in every sink that can."""
        shown = [on for sink in self._sinks if (on := sink.progress(label)) is not None]

        def on_progress(moment: GenerationProgress) -> None:
            for on in shown:
                on(moment)

        return on_progress

    def carry(self, metrics: Metrics) -> None:
        """Figures from before the first step, for the next record."""
        self._carried |= {name: float(value) for name, value in metrics.items()}

    def log(self, step: int, metrics: Metrics) -> None:
        """Closes the step: metrics, spans, `time/step_s`, `time/overhead_s` in one record."""
        assert not self._open, f"step {step} logged inside span {self._open[-1]!r}"
        own = {name: float(value) for name, value in metrics.items()}
        record = self._carried | own | self._close_step()
        self._carried = {}
        if "rollout/tokens" in record and record.get("time/generation_s"):
            record["rollout/tokens_per_s"] = record["rollout/tokens"] / record["time/generation_s"]
        for sink in self._sinks:
            sink.log(step, record)

    def note(self, message: str) -> None:
        """A line for the reader in every sink and in the log."""
        logger.info(message)
        for sink in self._sinks:
            sink.note(message)

    def finish(self, status: str) -> None:
        """Finishes the sinks; a second call does nothing."""
        if self._finished:
            return
        self._finished = True
        for sink in self._sinks:
            sink.finish(status)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        key = self._metric_name(name)
        began = self._clock()
        if self._step_began is None:
            self._step_began = began
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()
            seconds = self._clock() - began
            self._spans_s[key] = self._spans_s.get(key, 0.0) + seconds
            if not self._open and name in ASIDES:
                self._aside_s += seconds
            logger.debug("%s: %.4f s", key, seconds)

    def _metric_name(self, name: str) -> str:
        if self._open and (name in STAGES or name in self._open):
            return f"time/{self._open[0]}_{name}_s"
        return f"time/{name}_s"

    def _close_step(self) -> dict[str, float]:
        now = self._clock()
        began = now if self._step_began is None else self._step_began
        step_s = now - began - self._aside_s
        stages_s = sum(self._spans_s.get(f"time/{stage}_s", 0.0) for stage in STAGES)
        times = dict(self._spans_s)
        if stages_s > 0:
            times |= {"time/step_s": step_s, "time/overhead_s": step_s - stages_s}
        self._spans_s, self._aside_s, self._step_began = {}, 0.0, now
        return times
