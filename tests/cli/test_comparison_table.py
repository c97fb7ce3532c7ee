"""The comparison table from run folders."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from specrl.cli.comparison import arms_in, comparison_table
from specrl.telemetry.jsonl import JsonlSink

STEP = {
    "time/data_s": 0.0,
    "time/prepare_s": 1.0,
    "time/logprob_s": 2.0,
    "time/training_s": 3.0,
    "rollout/tokens": 100.0,
}


def write_run(folder: Path, drafter: str, generation_s: float, *overrides: str) -> Path:
    sink = JsonlSink(folder, config={"drafter": {"name": drafter}}, overrides=overrides)
    sink.start()
    spec = {} if drafter == "none" else {"spec/tokens_per_step": 2.0, "spec/num_decode_steps": 50.0}
    times = {"time/generation_s": generation_s, "time/step_s": 6.0 + generation_s}
    for step in range(3):
        sink.log(step, {**STEP, **times, **spec})
    sink.finish("finished")
    return folder


def shown(folders: list[Path]) -> str:
    text = io.StringIO()
    Console(width=120, file=text).print(comparison_table(arms_in(folders)))
    return text.getvalue()


def row(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if label in line)
    return [cell.strip() for cell in line.strip("│ ").split("│")][1:]


def test_arms_stand_beside_the_autoregressive_one(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "b", "ngram", 6.0, "drafter=ngram"),
        write_run(tmp_path / "a", "none", 12.0, "drafter=none"),
    ]
    text = shown(folders)
    assert row(text, "generation speedup") == ["1.00x", "2.00x"]
    assert row(text, "step speedup ") == ["1.00x", "1.50x"]
    assert row(text, "Amdahl bound") == ["-", "1.50x"]


def test_a_slower_drafter_is_shown_as_slower(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "none", 12.0),
        write_run(tmp_path / "b", "ngram", 24.0),
    ]
    assert row(shown(folders), "generation speedup") == ["1.00x", "0.50x"]


def test_arms_of_one_drafter_are_told_apart_by_their_overrides(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / k, "ngram", 5.0, "drafter=ngram", f"drafter.k={k}", "seed=1")
        for k in ("3", "5")
    ]
    assert [arm.name for arm in arms_in(folders)] == ["ngram drafter.k=3", "ngram drafter.k=5"]


def test_two_autoregressive_arms_leave_no_single_baseline(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"{drafter}{seed}", drafter, 5.0, f"drafter={drafter}", f"seed={seed}")
        for drafter in ("none", "ngram")
        for seed in (0, 1)
    ]
    assert "speedup" not in shown(folders).replace("generation speedup per token", "")


@pytest.mark.parametrize("damage", ["empty", "no steps", "absent"])
def test_a_run_without_steps_is_left_out(tmp_path: Path, damage: str) -> None:
    good = write_run(tmp_path / "good", "none", 1.0)
    bad = tmp_path / "bad"
    if damage != "absent":
        bad.mkdir()
    if damage == "no steps":
        info = json.loads((good / "run.json").read_text())
        (bad / "run.json").write_text(json.dumps(info))
    assert [arm.name for arm in arms_in([good, bad])] == ["none"]
