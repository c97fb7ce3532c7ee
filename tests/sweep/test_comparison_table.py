"""The comparison table from run folders."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from specrl.sweep.comparison import Comparison, arms_in, print_comparison
from specrl.sweep.points import Point
from specrl.telemetry.jsonl import JsonlSink

STEP = {
    "time/data_s": 0.0,
    "time/prepare_s": 1.0,
    "time/logprob_s": 2.0,
    "time/training_s": 3.0,
}
SPEC = {
    "spec/tokens_per_step": 2.0,
    "spec/num_decode_steps": 50.0,
    "spec/acceptance_length": 3.0,
    "spec/num_drafts": 25.0,
}


def write_run(folder: Path, generation_s: float, *overrides: str, tokens: float = 100.0) -> Point:
    drafter = next((o[8:] for o in overrides if o.startswith("drafter=")), "none")
    config = {"tracking": {"uri": "http://tracking:5000"}}
    sink = JsonlSink(folder, config=config, overrides=overrides)
    sink.start()
    spec = {} if drafter == "none" else SPEC
    times = {"time/generation_s": generation_s, "time/step_s": 6.0 + generation_s}
    for step in range(3):
        sink.log(step, {**STEP, **times, **spec, "rollout/tokens": tokens})
    sink.finish("finished")
    return Point(overrides, drafter, folder)


def shown(points: list[Point], width: int = 160) -> str:
    text = io.StringIO()
    Console(width=width, file=text).print(Comparison(arms_in(points)))
    return text.getvalue()


def names(points: list[Point]) -> list[str]:
    return [arm.arm.name for arm in arms_in(points)]


def row(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if label in line)
    return [cell.strip() for cell in line.strip("│ ").split("│")][1:]


def test_the_table_ends_with_the_command_that_opens_mlflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [
        write_run(tmp_path / "a", 12.0, "drafter=none"),
        write_run(tmp_path / "b", 6.0, "drafter=ngram"),
    ]
    print_comparison(points)
    assert capsys.readouterr().out.splitlines()[-1] == "compare runs: open http://tracking:5000"


def test_arms_stand_beside_the_autoregressive_one(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / "b", 6.0, "drafter=ngram"),
        write_run(tmp_path / "a", 12.0, "drafter=none"),
    ]
    text = shown(points)
    assert row(text, "generation speedup") == ["1.00x", "2.00x"]
    assert row(text, "step speedup ") == ["1.00x", "1.50x"]
    assert row(text, "Amdahl bound") == ["-", "1.50x"]
    assert row(text, "cost of an engine step") == ["-", "1.00"]
    assert row(text, "c(k) = alpha / S") == ["-", "1.50"]


def test_a_slower_drafter_is_shown_as_slower(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / "a", 12.0, "drafter=none"),
        write_run(tmp_path / "b", 24.0, "drafter=ngram"),
    ]
    assert row(shown(points), "generation speedup") == ["1.00x", "0.50x"]


def test_arms_of_one_drafter_are_told_apart_by_their_overrides(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / k, 5.0, "drafter=ngram", f"drafter.k={k}", "seed=1") for k in "35"
    ]
    assert names(points) == ["ngram drafter.k=3", "ngram drafter.k=5"]


def test_each_arm_is_matched_to_the_autoregressive_one_of_its_settings(tmp_path: Path) -> None:
    seconds = {("none", 0): 12.0, ("none", 1): 9.0, ("ngram", 0): 6.0, ("ngram", 1): 3.0}
    points = [
        write_run(tmp_path / f"{drafter}{seed}", spent, f"drafter={drafter}", f"seed={seed}")
        for (drafter, seed), spent in seconds.items()
    ]
    assert names(points) == ["none seed=0", "ngram seed=0", "none seed=1", "ngram seed=1"]
    assert row(shown(points), "generation speedup") == ["1.00x", "2.00x", "1.00x", "3.00x"]


def test_an_arm_without_its_autoregressive_one_has_no_speedup(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / "a", 12.0, "drafter=none", "seed=0"),
        write_run(tmp_path / "b", 6.0, "drafter=ngram", "seed=1"),
    ]
    assert row(shown(points), "generation speedup") == ["1.00x", "-"]
    assert "Amdahl bound " not in shown(points[1:])


def test_one_autoregressive_arm_stands_for_every_draft_length(tmp_path: Path) -> None:
    words = [("none", "3"), ("none", "5"), ("ngram", "3"), ("ngram", "5")]
    points = [
        write_run(
            tmp_path / (drafter if drafter == "none" else drafter + k),
            12.0 if drafter == "none" else 4.0,
            f"drafter={drafter}",
            f"drafter.k={k}",
        )
        for drafter, k in words
    ]
    assert names(points) == ["none", "ngram drafter.k=3", "ngram drafter.k=5"]
    assert row(shown(points), "generation speedup") == ["1.00x", "3.00x", "3.00x"]


def test_an_arm_that_generated_nothing_has_no_speedup(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / "a", 12.0, "drafter=none"),
        write_run(tmp_path / "b", 6.0, "drafter=ngram", tokens=0.0),
    ]
    assert row(shown(points), "generation speedup") == ["1.00x", "-"]


def test_brackets_in_an_override_are_shown_as_they_are(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / c, 5.0, "drafter=none", f"rollout.cores=[{c}]") for c in ("a", "b")
    ]
    assert "none rollout.cores=[a]" in shown(points)


@pytest.mark.parametrize("damage", ["empty", "no steps", "absent"])
def test_a_run_without_steps_is_left_out(tmp_path: Path, damage: str) -> None:
    good = write_run(tmp_path / "good", 1.0, "drafter=none")
    bad = Point(("drafter=ngram",), "ngram", tmp_path / "bad")
    if damage != "absent":
        bad.folder.mkdir()
    if damage == "no steps":
        info = json.loads((good.folder / "run.json").read_text())
        (bad.folder / "run.json").write_text(json.dumps(info))
    assert len(names([good, bad])) == 1


def test_a_narrow_console_gets_letters_and_further_tables(tmp_path: Path) -> None:
    points = [
        write_run(
            tmp_path / f"{drafter}{k}",
            12.0 / int(k),
            *(f"drafter={drafter}", f"drafter.k={k}", f"learner.learning_rate={k}e-6"),
        )
        for drafter in ("none", "ngram")
        for k in "12345"
    ]
    text = shown(points, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "A = none learner.learning_rate=1e-6\n" in text
    assert "J = ngram drafter.k=5 learner.learning_rate=5e-6\n" in text
    rows = [line for line in text.splitlines() if "generation speedup" in line]
    assert len(rows) == 2
    assert sum(line.count("1.00x") for line in rows) == 10


def test_a_name_longer_than_the_console_is_told_whole(tmp_path: Path) -> None:
    path = f"init.path=/{'x' * 90}"
    points = [
        write_run(tmp_path / k, 1.0, "drafter=ngram", f"{path}{k}", f"drafter.k={k}") for k in "12"
    ]
    text = shown(points, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert f"{path}1drafter.k=1" in text.replace("\n", "").replace(" ", "")


def test_no_line_is_wider_than_the_console_and_no_figure_is_cut(tmp_path: Path) -> None:
    points = [
        write_run(tmp_path / f"{drafter}{n}", 2e6 / n, f"drafter={drafter}", f"drafter.k={n}")
        for drafter in ("none", "ngram")
        for n in (1, 2, 3)
    ]
    comparison = Comparison(arms_in(points))
    for width in range(60, 140):
        text = io.StringIO()
        Console(width=width, file=text).print(comparison)
        assert max(len(line) for line in text.getvalue().splitlines()) <= width
        assert "…" not in text.getvalue()


def test_arms_that_fit_keep_their_names(tmp_path: Path) -> None:
    points = [write_run(tmp_path / name, 5.0, f"drafter={name}") for name in ("none", "ngram")]
    heading = next(line for line in shown(points, width=80).splitlines() if "ngram" in line)
    assert heading.split() == ["┃", "┃", "none", "┃", "ngram", "┃"]
