"""What a person reads, on a terminal and in a log file."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from specrl.telemetry.console import ConsoleSink, PipeSafeConsole, rates, step_line
from specrl.telemetry.jsonl import JsonlSink, StepRecord
from specrl.telemetry.summary import summarize
from specrl.types import GenerationProgress

STEP = {
    "time/data_s": 0.01,
    "time/prepare_s": 0.5,
    "time/generation_s": 12.0,
    "time/logprob_s": 2.0,
    "time/training_s": 5.0,
    "time/step_s": 20.0,
    "time/overhead_s": 0.49,
    "reward/mean": 0.4125,
    "rollout/tokens": 6000.0,
    "rollout/tokens_per_s": 500.0,
    "spec/acceptance_length": 2.0,
    "spec/num_drafts": 3000.0,
}


def recorded(terminal: str = "") -> tuple[io.StringIO, Console]:
    text = io.StringIO()
    kind = {"TERM": terminal or "dumb"}
    return text, Console(file=text, force_terminal=bool(terminal), width=80, _environ=kind)


def test_a_step_is_one_line_with_its_figures():
    line = step_line(3, 20, STEP | {"eval/accuracy": 0.5, "eval/stderr": 0.0625})
    assert line == (
        "step 3/20  reward 0.412  accuracy 0.500 ± 0.062  acceptance 2.00  data 0.01  "
        "prepare 0.50  generation 12.0  logprob 2.00  training 5.00  total 20.0 s  500 tok/s"
    )


def test_a_step_without_speculation_or_evaluation_says_nothing_of_them():
    line = step_line(1, None, {"reward/mean": 1.0, "time/step_s": 0.0})
    assert line == "step 1  reward 1.000"


def test_a_step_says_what_the_draft_costs_and_that_it_has_collapsed():
    trained = {"time/draft_s": 0.5, "draft/loss": 0.3, "spec/draft_collapsed": 1.0}
    line = step_line(3, 20, STEP | trained)
    assert "acceptance 2.00  draft collapsed  data" in line
    assert "training 5.00  (draft 0.50)  total" in line
    healthy = step_line(3, 20, STEP | {"time/draft_s": 0.02, "spec/draft_collapsed": 0.0})
    assert healthy == step_line(3, 20, STEP)


def test_a_log_file_gets_the_step_unwrapped_and_without_escapes(tmp_path):
    text, console = recorded()
    ConsoleSink(tmp_path, console=console).log(1, STEP)
    assert text.getvalue().count("\n") == 1
    assert "\x1b" not in text.getvalue()


def test_a_log_file_gets_a_progress_line_at_most_every_half_minute(tmp_path):
    text, console = recorded()
    now = [0.0]
    sink = ConsoleSink(tmp_path, console=console, clock=lambda: now[0])
    on_progress = sink.progress("generation")
    for second in range(1, 100):
        now[0] = float(second)
        on_progress(GenerationProgress(second, 200, 50 * second, float(second), 2.31))
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "generation 30/200  50 tok/s  acceptance 2.31  ETA 170 s"


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path):
    text, console = recorded(terminal="dumb")
    now = [0.0]
    on_progress = ConsoleSink(tmp_path, console=console, clock=lambda: now[0]).progress(
        "generation"
    )
    now[0] = 60.0
    on_progress(GenerationProgress(4, 8, 100, 2.0, None))
    assert text.getvalue() == "generation 4/8  50 tok/s  ETA 2 s\n"


def test_a_terminal_gets_a_bar_that_goes_away(tmp_path):
    text, console = recorded(terminal="xterm")
    sink = ConsoleSink(tmp_path, console=console)
    on_progress = sink.progress("generation")
    on_progress(GenerationProgress(4, 8, 100, 2.0, None))
    assert "4/8  50 tok/s  ETA 2 s" in text.getvalue()
    on_progress(GenerationProgress(8, 8, 200, 4.0, None))
    assert not console._live_stack
    on_progress(GenerationProgress(8, 8, 200, 4.0, None))


def test_a_bar_left_open_by_a_failure_closes_with_the_run(tmp_path):
    _, console = recorded(terminal="xterm")
    JsonlSink(tmp_path, config={}).start()
    sink = ConsoleSink(tmp_path, console=console)
    sink.progress("generation")(GenerationProgress(1, 8, 10, 1.0, None))
    sink.finish("failed: engine died")
    assert not console._live_stack


def test_rates_before_anything_happened_divide_by_nothing():
    assert rates(GenerationProgress(0, 8, 0, 0.0, None)) == "0/8"


def test_the_summary_weighs_acceptance_by_drafts():
    slow = STEP | {
        "rollout/tokens": 1000.0,
        "spec/acceptance_length": 1.0,
        "spec/num_drafts": 1000.0,
        "reward/mean": 0.9,
    }
    summary = summarize([StepRecord(1, 0.0, STEP), StepRecord(2, 0.0, slow)])
    assert summary is not None
    assert summary.arm.acceptance_length == pytest.approx(1.75)
    assert summary.arm.generation_tokens_per_s == pytest.approx(7000 / 24)
    assert summary.arm.generation_share == pytest.approx(0.6)
    assert summary.reward == (0.4125, 0.9)
    assert summary.accuracy is None


def test_the_closing_summary_names_shares_files_and_the_mlflow_command(tmp_path):
    tmp_path = tmp_path / "arithmetic-smollm2_135m_math-eagle3-k3-dapo-online-0046867f"
    jsonl = JsonlSink(tmp_path, config={})
    jsonl.start()
    jsonl.log(0, {"eval/accuracy": 0.25})
    jsonl.log(1, STEP)
    text, console = recorded()
    ConsoleSink(tmp_path, console=console, ui="mlflow ui --here").finish("finished")
    shown = text.getvalue()
    assert f"{tmp_path.name}: 1 steps, mean per step" in shown.splitlines()
    for expected in (
        "generation", "60.0%", "2.5%", "R_gen", "acceptance length (bonus token included): 2.00",
        "generation: 500 tokens/s", "accuracy: first 0.250", "finished", "mlflow ui --here",
    ):  # fmt: skip
        assert expected in shown
    assert str(tmp_path / "metrics.jsonl") in shown


def test_brackets_in_a_note_are_text(tmp_path: Path):
    text, console = recorded()
    ConsoleSink(tmp_path, console=console).note("kept [bold]9 of [1, 2]")
    assert text.getvalue() == "kept [bold]9 of [1, 2]\n"


class GonePipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


def test_a_reader_that_left_does_not_end_the_run(tmp_path):
    sink = ConsoleSink(tmp_path, console=PipeSafeConsole(file=GonePipe()))
    sink.note("first")
    sink.note("second")
