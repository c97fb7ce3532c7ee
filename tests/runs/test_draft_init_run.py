"""A draft init for real: built by its own command, found by a sweep over k, worth its cost."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path

import pytest

from specrl.algo.comparison import STAGES
from specrl.draft_init import read_record
from specrl.drafter.eagle3_folder import check_folder
from specrl.telemetry.jsonl import StepRecord, read_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# A policy that is not flat, so that there is something for a draft to learn.
TINY = [
    "debug=tiny",
    "model.tiny.num_hidden_layers=4",
    "+model.tiny.initializer_range=0.1",
    "drafter=eagle3",
    "drafter.vocab_size=64",
    "init.num_prompts=24",
    "init.samples_per_prompt=2",
    "init.passes=4",
    "init.heldout_prompts=8",
    "rollout.max_tokens=32",
    "tracking=none",
]
MEASURED = [
    "rollout.prompts_per_step=8",
    "rollout.group_size=8",
    "steps=3",
    "evaluation.every=100",
    "evaluation.num_prompts=8",
    "evaluation.samples=2",
]


def said_by(module: str, folder: Path, *words: str) -> str:
    where = [f"model.cache_dir={folder / 'cache'}", f"output_dir={folder / 'runs'}"]
    code = f"import sys; from specrl.cli.{module} import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, *TINY, *where],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def records_of(folder: Path, arm: str) -> Sequence[StepRecord]:
    (run,) = (folder / "runs").glob(f"*-eagle3-{arm}-*")
    return read_run(run).records


def test_an_init_is_built_once_and_a_sweep_starts_from_it_and_accepts_more(tmp_path: Path) -> None:
    built = said_by("init_draft", tmp_path, "init=dapo")
    (folder,) = (tmp_path / "cache" / "drafts").glob("tiny-eagle3-dapo-24-*")
    assert str(folder) in built
    record = read_record(folder)
    assert record is not None
    assert record.responses == 48
    assert record.trained_tokens == 4 * record.response_tokens
    assert record.acceptance[2] > record.acceptance_before[2]
    (model,) = (tmp_path / "cache").glob("tiny-*")
    check_folder(folder, model, (0, 2, 3))

    sweep = said_by("train", tmp_path, "-m", "drafter.k=1,2", "init=dapo", *MEASURED)
    assert "building a draft" not in sweep
    for k in (1, 2):
        first = records_of(tmp_path, f"k{k}-dapo")[0].metrics
        promised = first["init/acceptance_length/probabilistic"]
        assert promised == pytest.approx(record.acceptance[k - 1])
        assert first["init/prompts"] == 24
        assert first["spec/drafted_pos_0"] > 0
        assert ("spec/drafted_pos_1" in first) == (k == 2)

    said_by("train", tmp_path, "drafter.k=2", "init=random", *MEASURED)
    random, trained = records_of(tmp_path, "k2-random"), records_of(tmp_path, "k2-dapo")
    assert_training_raised_acceptance(random[0].metrics, trained[0].metrics, k=2)
    for records in (random, trained):
        assert_stages_fill_the_step_and_accuracy_is_known(records)


def assert_training_raised_acceptance(
    random: Mapping[str, float], trained: Mapping[str, float], k: int
) -> None:
    """Same policy, prompts and seeds; an accepted count of 0..k spreads by k / 2 at most."""
    assert random["rollout/tokens"] > 1500
    error = k / 2 * sqrt(1 / random["spec/num_drafts"] + 1 / trained["spec/num_drafts"])
    gain = trained["spec/acceptance_length"] - random["spec/acceptance_length"]
    assert gain > 5 * error


def assert_stages_fill_the_step_and_accuracy_is_known(records: Sequence[StepRecord]) -> None:
    """Three steps, with an evaluation before the first and one after the last."""
    evaluated = [record for record in records if "eval/accuracy" in record.metrics]
    assert [record.step for record in evaluated] == [0, 3]
    for record in evaluated:
        assert 0.0 <= record.metrics["eval/accuracy"] <= 1.0
        assert 0.0 <= record.metrics["eval/stderr"] <= 0.5
        assert record.metrics["eval/num_prompts"] == 8
    timed = [record.metrics for record in records if "time/step_s" in record.metrics]
    assert len(timed) == 3
    for step in timed[1:]:
        stages_s = sum(step[f"time/{stage}_s"] for stage in STAGES)
        assert 0.98 * step["time/step_s"] <= stages_s <= step["time/step_s"]
