"""The recorder's arithmetic on a fake clock."""

from contextlib import suppress

import pytest

from specrl.telemetry.recorder import STAGES, Recorder
from specrl.telemetry.sink import Sink
from specrl.types import GenerationProgress, Metrics


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


class ListSink(Sink):
    def __init__(self) -> None:
        self.events: list[object] = []
        self.steps: dict[int, Metrics] = {}

    def start(self) -> None:
        self.events.append("start")

    def log(self, step: int, metrics: Metrics) -> None:
        self.steps[step] = metrics

    def note(self, message: str) -> None:
        self.events.append(message)

    def progress(self, label: str):
        return lambda moment: self.events.append((label, moment.finished))

    def finish(self, status: str) -> None:
        self.events.append(status)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def recorder(clock: Clock, sink: ListSink) -> Recorder:
    return Recorder([sink], clock=clock)


def test_five_stages_and_overhead_make_the_step(recorder, sink, clock):
    clock.pass_s(50)  # before the first span: no part of the step
    for seconds, stage in enumerate(STAGES, start=1):
        with recorder.span(stage):
            clock.pass_s(seconds)
        clock.pass_s(0.25)
    recorder.log(1, {"reward/mean": 0.5})
    metrics = sink.steps[1]
    assert [metrics[f"time/{stage}_s"] for stage in STAGES] == [1, 2, 3, 4, 5]
    assert metrics["time/step_s"] == 16.25
    assert metrics["time/overhead_s"] == 1.25
    assert metrics["reward/mean"] == 0.5


def test_spans_of_one_name_add_up_and_start_afresh_in_the_next_step(recorder, sink, clock):
    for _ in range(3):
        with recorder.span("generation"):
            clock.pass_s(2)
    recorder.log(1, {})
    clock.pass_s(7)
    with recorder.span("generation"):
        clock.pass_s(1)
    recorder.log(2, {})
    assert sink.steps[1]["time/generation_s"] == 6
    assert sink.steps[2]["time/generation_s"] == 1
    assert sink.steps[2]["time/step_s"] == 8  # what passed since the last log is overhead
    assert sink.steps[2]["time/overhead_s"] == 7


def test_a_nested_span_is_recorded_and_not_counted_twice(recorder, sink, clock):
    with recorder.span("training"):
        clock.pass_s(3)
        with recorder.span("draft"):
            clock.pass_s(1)
    recorder.log(1, {})
    assert sink.steps[1]["time/training_s"] == 4
    assert sink.steps[1]["time/draft_s"] == 1
    assert sink.steps[1]["time/overhead_s"] == 0


def test_evaluation_and_checkpoint_are_no_part_of_the_step(recorder, sink, clock):
    with recorder.span("evaluation"), recorder.span("generation"):
        clock.pass_s(10)
    with recorder.span("generation"):
        clock.pass_s(2)
    with recorder.span("checkpoint"):
        clock.pass_s(5)
    recorder.log(1, {})
    metrics = sink.steps[1]
    assert metrics["time/evaluation_s"] == 10
    assert metrics["time/evaluation_generation_s"] == 10
    assert metrics["time/checkpoint_s"] == 5
    assert metrics["time/generation_s"] == 2
    assert metrics["time/step_s"] == 2
    assert metrics["time/overhead_s"] == 0


def test_a_span_that_raises_is_recorded(recorder, sink, clock):
    with suppress(KeyError), recorder.span("training"), recorder.span("draft"):
        clock.pass_s(3)
        raise KeyError
    recorder.log(1, {})
    assert sink.steps[1]["time/training_s"] == 3
    assert sink.steps[1]["time/draft_s"] == 3


def test_an_evaluation_alone_is_no_step(recorder, sink, clock):
    with recorder.span("evaluation"):
        clock.pass_s(9)
    recorder.log(0, {"eval/accuracy": 0.1})
    assert sink.steps[0] == {"eval/accuracy": 0.1, "time/evaluation_s": 9}


def test_generation_has_a_rate(recorder, sink, clock):
    with recorder.span("generation"):
        clock.pass_s(2)
    recorder.log(1, {"rollout/tokens": 800})
    assert sink.steps[1]["rollout/tokens_per_s"] == 400


def test_what_was_measured_before_the_first_step_is_in_its_record_only(recorder, sink):
    recorder.carry({"init/seconds": 3})
    recorder.log(0, {"reward/mean": 1.0})
    recorder.log(1, {"reward/mean": 0.5})
    assert sink.steps[0]["init/seconds"] == 3.0
    assert "init/seconds" not in sink.steps[1]


def test_logging_inside_a_span_is_our_bug(recorder):
    with pytest.raises(AssertionError, match="training"), recorder.span("training"):
        recorder.log(1, {})


def test_spans_leave_a_debug_line(recorder, clock, caplog):
    with caplog.at_level("DEBUG"), recorder.span("data"):
        clock.pass_s(1.5)
    assert "time/data_s: 1.5000 s" in caplog.text


def test_notes_progress_and_one_finish_reach_the_sinks(recorder, sink):
    recorder.note("checkpoint 5 saved")
    recorder.progress("generation")(GenerationProgress(3, 8, 100, 1.0, None))
    recorder.finish("finished")
    recorder.finish("failed: too late")
    assert sink.events == ["start", "checkpoint 5 saved", ("generation", 3), "finished"]
    assert recorder.run_id is None
