"""What a person watching the run reads: a line a step, a progress bar, a closing summary."""

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from specrl.algo.comparison import STAGES
from specrl.protocols import OnProgress
from specrl.telemetry.jsonl import METRICS_FILE, read_run
from specrl.telemetry.sink import Sink
from specrl.telemetry.summary import RunSummary, summarize
from specrl.types import GenerationProgress, Metrics

REFRESH_S = 0.25
QUIET_LINE_S = 30.0


class PipeSafeConsole(Console):
    """A console whose reader may leave (`specrl | head`): rich would end the process."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class ConsoleSink(Sink):
    """Writes to stdout, with a bar on a terminal and a line per QUIET_LINE_S in a log file.

    `ui` is the command that shows the run in MLflow; None leaves the line out.
    """

    def __init__(
        self,
        run_folder: Path,
        *,
        total_steps: int | None = None,
        ui: str | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = run_folder
        self._total_steps = total_steps
        self._ui = ui
        self._console = console or PipeSafeConsole()
        self._clock = clock
        self._bar: Progress | None = None

    def log(self, step: int, metrics: Metrics) -> None:
        self._close_bar()
        self._line(step_line(step, self._total_steps, metrics))

    def note(self, message: str) -> None:
        self._line(message)

    def progress(self, label: str) -> OnProgress:
        self._close_bar()
        drawable = self._console.is_terminal and not self._console.is_dumb_terminal
        return self._on_terminal(label) if drawable else self._in_log(label)

    def finish(self, status: str) -> None:
        self._close_bar()
        summary = summarize(read_run(self._folder).records)
        if summary is not None:
            self._line(f"{self._folder.name}: {summary.arm.steps} steps, mean per step")
            self._console.print(_table(summary))
            for line in _summary_lines(summary):
                self._line(line)
        self._line(f"{status}; every step is in {self._folder / METRICS_FILE}")
        if self._ui is not None:
            self._line(f"compare runs: {self._ui}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _on_terminal(self, label: str) -> OnProgress:
        # Drawn from the caller's thread only: a refresh thread would take a core from the engine.
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[rates]}"),
        )
        bar = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
        task: TaskID = bar.add_task(label, total=None, rates="")
        self._bar = bar
        bar.start()
        drawn_at = float("-inf")

        def on_progress(moment: GenerationProgress) -> None:
            nonlocal drawn_at
            if self._bar is not bar:
                return
            if moment.finished >= moment.total:
                self._close_bar()
                return
            now = self._clock()
            if now - drawn_at < REFRESH_S:
                return
            drawn_at = now
            bar.update(task, completed=moment.finished, total=moment.total, rates=rates(moment))
            bar.refresh()

        return on_progress

    def _in_log(self, label: str) -> OnProgress:
        said_at = self._clock()

        def on_progress(moment: GenerationProgress) -> None:
            nonlocal said_at
            now = self._clock()
            if now - said_at >= QUIET_LINE_S and moment.finished < moment.total:
                said_at = now
                self._line(f"{label} {rates(moment)}")

        return on_progress


def rates(moment: GenerationProgress) -> str:
    """ "12/64  532 tok/s  acceptance 2.31  ETA 41 s"; the ETA assumes equal work per response."""
    parts = [f"{moment.finished}/{moment.total}"]
    if moment.elapsed_s > 0:
        parts.append(f"{moment.tokens / moment.elapsed_s:.0f} tok/s")
    if moment.acceptance_length is not None:
        parts.append(f"acceptance {moment.acceptance_length:.2f}")
    if moment.finished > 0:
        left_s = moment.elapsed_s * (moment.total - moment.finished) / moment.finished
        parts.append(f"ETA {left_s:.0f} s")
    return "  ".join(parts)


def step_line(step: int, total_steps: int | None, metrics: Metrics) -> str:
    """One step in one line; what the step did not measure is left out."""
    parts = [f"step {step}" if total_steps is None else f"step {step}/{total_steps}"]
    if "reward/mean" in metrics:
        parts.append(f"reward {metrics['reward/mean']:.3f}")
    if "eval/accuracy" in metrics:
        stderr = metrics.get("eval/stderr")
        spread = "" if stderr is None else f" ± {stderr:.3f}"
        parts.append(f"accuracy {metrics['eval/accuracy']:.3f}{spread}")
    if "spec/acceptance_length" in metrics:
        parts.append(f"acceptance {metrics['spec/acceptance_length']:.2f}")
    if metrics.get("spec/draft_collapsed"):
        parts.append("draft collapsed")
    stages = [stage for stage in STAGES if f"time/{stage}_s" in metrics]
    parts += [f"{stage} {_seconds(metrics[f'time/{stage}_s'])}" for stage in stages]
    if "draft/loss" in metrics:  # the stage is there, and empty, also where no draft is trained
        parts.append(f"(draft {_seconds(metrics['time/draft_s'])})")
    if stages:
        parts.append(f"total {_seconds(metrics['time/step_s'])} s")
    if "rollout/tokens_per_s" in metrics:
        parts.append(f"{metrics['rollout/tokens_per_s']:.0f} tok/s")
    return "  ".join(parts)


def _table(summary: RunSummary) -> Table:
    arm, table = summary.arm, Table()
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    for stage, seconds in arm.stage_s.items():
        table.add_row(stage, _seconds(seconds), _share(seconds, arm.step_s))
    table.add_row("overhead", _seconds(summary.overhead_s), _share(summary.overhead_s, arm.step_s))
    table.add_section()
    table.add_row("step", _seconds(arm.step_s), "")
    return table


def _summary_lines(summary: RunSummary) -> list[str]:
    arm = summary.arm
    lines = [f"R_gen (generation's share of the step): {arm.generation_share:.1%}"]
    if summary.reward is not None:
        lines.append(f"reward: first {summary.reward[0]:.3f}, last {summary.reward[1]:.3f}")
    if summary.accuracy is not None:
        lines.append(f"accuracy: first {summary.accuracy[0]:.3f}, last {summary.accuracy[1]:.3f}")
    if arm.acceptance_length is not None:
        lines.append(f"acceptance length (bonus token included): {arm.acceptance_length:.2f}")
    if arm.generation_tokens_per_s is not None:
        lines.append(f"generation: {arm.generation_tokens_per_s:.0f} tokens/s")
    return lines


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}"


def _share(seconds: float, step_s: float) -> str:
    return f"{seconds / step_s:.1%}" if step_s > 0 else "-"
