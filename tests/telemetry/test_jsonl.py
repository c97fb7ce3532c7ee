"""metrics.jsonl and run.json, whatever a kill leaves of them."""

import json
import math
from pathlib import Path

import pytest

from specrl.errors import UserError
from specrl.telemetry.jsonl import JsonlSink, read_from, read_run

CONFIG = {"steps": 3, "model": {"name": "tiny"}}


def started(folder: Path, resume_step: int | None = None) -> JsonlSink:
    sink = JsonlSink(folder, config=CONFIG, overrides=["steps=3"], resume_step=resume_step)
    sink.start()
    return sink


def run_killed_after(folder: Path, steps: int) -> None:
    sink = started(folder)
    for step in range(1, steps + 1):
        sink.log(step, {"time/step_s": float(step)})


def steps_of(folder: Path) -> list[int]:
    return [record.step for record in read_run(folder).records]


def test_a_step_can_be_read_as_soon_as_it_is_logged(tmp_path):
    sink = started(tmp_path)
    sink.log(1, {"reward/mean": 0.25, "anything/else": 3.0})
    log = read_run(tmp_path)
    assert log.records[0].metrics == {"reward/mean": 0.25, "anything/else": 3.0}
    assert log.info is not None
    assert log.info.config == CONFIG
    assert log.info.overrides == ["steps=3"]
    assert log.info.status is None
    sink.finish("interrupted")
    assert read_run(tmp_path).info.status == "interrupted"


def test_nan_and_infinities_keep_the_json_valid_and_survive(tmp_path):
    sink = started(tmp_path)
    sink.log(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})

    def refuse(constant: str) -> None:
        raise AssertionError(f"not JSON: {constant}")

    text = (tmp_path / "metrics.jsonl").read_text()
    line = json.loads(text, parse_constant=refuse)
    assert line["metrics"] == {"a": None, "b": None, "c": None, "d": 1.0}
    assert set(line["non_finite"]) == {"a", "b", "c"}
    metrics = read_run(tmp_path).records[0].metrics
    assert math.isnan(metrics["a"])
    assert (metrics["b"], metrics["c"]) == (math.inf, -math.inf)


@pytest.mark.parametrize("torn", ['{"step": 4, "ti', '{"step": 4}\n', "\x00\x00\n", "[1]\n", "4"])
def test_a_torn_line_is_left_out_and_repaired_on_resume(tmp_path, torn):
    run_killed_after(tmp_path, 3)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert steps_of(tmp_path) == [1, 2, 3]
    started(tmp_path, resume_step=3).log(4, {})
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_resuming_drops_the_steps_after_the_checkpoint(tmp_path):
    run_killed_after(tmp_path, 7)
    key = read_run(tmp_path).info.key
    sink = started(tmp_path, resume_step=5)
    sink.log(6, {"time/step_s": 60.0})
    log = read_run(tmp_path)
    assert [record.step for record in log.records] == [1, 2, 3, 4, 5, 6]
    assert log.records[-1].metrics == {"time/step_s": 60.0}
    assert log.info.key == key


def test_a_fresh_start_is_another_run_and_keeps_the_old_lines_aside(tmp_path):
    run_killed_after(tmp_path, 2)
    key = read_run(tmp_path).info.key
    started(tmp_path).log(1, {})
    log = read_run(tmp_path)
    assert steps_of(tmp_path) == [1]
    assert log.info.key != key
    assert log.info.previous_key == key
    assert len((tmp_path / "metrics.jsonl.old").read_text().splitlines()) == 2


def test_resuming_survives_a_damaged_run_json(tmp_path):
    run_killed_after(tmp_path, 2)
    (tmp_path / "run.json").write_text('{"key": "ab')
    assert read_run(tmp_path).info is None
    started(tmp_path, resume_step=2)
    assert read_run(tmp_path).info.config == CONFIG


def test_a_follower_gets_each_complete_line_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    run_killed_after(tmp_path, 2)
    first, offset = read_from(path, 0)
    whole = path.read_text().splitlines()[0] + "\n"
    with path.open("a") as file:
        file.write(whole[:20])
    torn, same = read_from(path, offset)
    with path.open("a") as file:
        file.write(whole[20:])
    second, _ = read_from(path, same)
    assert ([r.step for r in first], torn, [r.step for r in second]) == ([1, 2], [], [1])


def test_going_on_from_before_the_first_step_keeps_the_old_lines_aside(tmp_path):
    run_killed_after(tmp_path, 3)
    key = read_run(tmp_path).info.key
    started(tmp_path, resume_step=-1)
    assert steps_of(tmp_path) == []
    assert read_run(tmp_path).info.key == key
    assert len((tmp_path / "metrics.jsonl.old").read_text().splitlines()) == 3


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(UserError, match=r"run\.json nor metrics\.jsonl"):
        read_run(tmp_path)
