"""A real sweep: its draft init is built meanwhile, one arm is killed, its rerun makes up for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path

import pytest

from specrl.algo.comparison import STAGES
from specrl.draft_record import read_record
from specrl.drafter.eagle3_folder import check_folder
from specrl.sweep.record import records_in
from specrl.sweep.status import read_status
from specrl.sweep.table import Row, rows_of
from specrl.telemetry.jsonl import STEP_MARK, StepRecord, read_run
from specrl.types import Metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 6
# A policy that is not flat, so that there is something for a draft to learn; fp32, and losses that
# depend on every earlier step although rewards are rare.
WORDS = [
    "debug=tiny",
    "+model.tiny.initializer_range=0.1",
    "rollout.dtype=float32",
    "rollout.prompts_per_step=8",
    "rollout.group_size=8",
    "rollout.max_tokens=32",
    "learner.precision=fp32",
    "learner.learning_rate=1e-3",
    "learner.weight_decay=0.1",
    "algorithm.kl_coef=0.1",
    "evaluation.every=100",
    "evaluation.num_prompts=8",
    "evaluation.samples=2",
    "tracking=none",
    f"steps={STEPS}",
    "checkpoint.every=2",
]
DAPO = [
    "init=dapo",
    "init.num_prompts=24",
    "init.samples_per_prompt=2",
    "init.passes=4",
    "init.heldout_prompts=8",
]
SAME = ("rollout/length_mean", "spec/num_drafts", "spec/acceptance_length")
CLOSE = ("policy/loss", "policy/grad_norm", "policy/entropy")


class Command:
    """A console script on the tiny model and a cache that all of them share."""

    def __init__(self, folder: Path, module: str, runs: str, *words: str) -> None:
        self._said = folder / f"{module}-{runs}-{len(list(folder.iterdir()))}.log"
        code = f"import sys; from specrl.cli.{module} import main; sys.exit(main())"
        where = [f"model.cache_dir={folder / 'cache'}", f"output_dir={folder / runs}"]
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *words, *WORDS, *where],
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> str:
        return self._said.read_text()

    def wait_to_say(self, words: str) -> None:
        while words not in self.said():
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)

    def finish(self, code: int = 0) -> str:
        assert self.process.wait() == code, self.said()
        return self.said()


def three_arms(folder: Path) -> Command:
    """One for each k, which share a tiny model and a draft init, and one without a draft."""
    arms = ["-m", "drafter=eagle3,none", "drafter.k=2,1", "hydra.launcher.jobs=2"]
    return Command(folder, "train", "broken", *arms, *DAPO)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweeps")


@pytest.fixture(scope="module")
def broken(folder: Path) -> tuple[str, str]:
    """What specrl-init-draft says, and a sweep that began meanwhile and lost its first arm."""
    init = Command(folder, "init_draft", "none", "drafter=eagle3", *DAPO)
    init.wait_to_say("building a draft: init=dapo")
    sweep = three_arms(folder)
    while not killed_after_a_checkpoint(folder / "broken"):
        assert sweep.process.poll() is None, sweep.said()
        time.sleep(0.05)
    return init.finish(), sweep.finish(1)


def killed_after_a_checkpoint(runs: Path) -> bool:
    """Kills the first arm once it has saved and before it is done."""
    for record in records_in(runs):
        folder = record.points[0].folder
        status = read_status(folder)
        saved = list((folder / "checkpoints").glob("step-*"))
        if status is not None and status.process is not None and saved:
            assert status.state == "running", "it was over before it could be killed"
            os.kill(status.process.pid, signal.SIGKILL)
            return True
    return False


@pytest.fixture(scope="module")
def whole(folder: Path, broken: tuple[str, str]) -> Mapping[str, Row]:
    """A sweep that nobody disturbs: the arm that was killed, and one with a draft of no use."""
    del broken  # its draft is to be there
    arms = ["-m", "drafter=eagle3", "drafter.k=2", "hydra.launcher.jobs=2"]
    init = ["init=dapo,random", *DAPO[1:]]
    said = Command(folder, "train", "whole", *arms, *init).finish()
    assert "building a draft: init=dapo" not in said
    return rows(folder / "whole")


def rows(runs: Path) -> dict[str, Row]:
    """Of the only sweep, by name of the run folder."""
    (record,) = records_in(runs)
    return {row.point.folder.name: row for row in rows_of(record.points)}


def told(row: Row) -> tuple[object, ...]:
    """What the table says, times left out."""
    return row.status.state, row.steps, row.acceptance_length, row.reward, row.accuracy


def records_of(arms: Mapping[str, Row], which: str) -> Sequence[StepRecord]:
    (row,) = (row for name, row in arms.items() if f"-{which}-" in name)
    return read_run(row.point.folder).records


def steps(records: Sequence[StepRecord]) -> list[Metrics]:
    """Evaluations left out."""
    return [record.metrics for record in records if STEP_MARK in record.metrics]


def test_one_builds_the_init_and_the_arms_that_need_it_wait(
    folder: Path, broken: tuple[str, str]
) -> None:
    built, swept = broken
    (draft,) = (folder / "cache" / "drafts").glob("tiny-eagle3-dapo-24-*")
    assert str(draft) in built.replace("\n", "")
    assert "building a draft" not in swept
    assert "waiting for it" in swept
    record = read_record(draft)
    assert record is not None
    assert record.responses == 48
    assert record.trained_tokens == 4 * record.response_tokens
    assert record.acceptance[2] > record.acceptance_before[2]
    (model,) = (folder / "cache").glob("tiny-*")
    check_folder(draft, model, (0, 2, 3))
    for k in (1, 2):
        first = records_of(rows(folder / "broken"), f"k{k}-dapo")[0].metrics
        promised = first["init/acceptance_length/probabilistic"]
        assert promised == pytest.approx(record.acceptance[k - 1])
        assert first["init/prompts"] == 24
        assert first["spec/drafted_pos_0"] > 0
        assert ("spec/drafted_pos_1" in first) == (k == 2)


def test_a_sweep_with_a_killed_arm_ends_and_its_rerun_makes_the_table_of_a_whole_one(
    folder: Path, broken: tuple[str, str], whole: Mapping[str, Row]
) -> None:
    assert "3 points: 2 finished, 1 failed" in broken[1]
    assert "killed by signal 9 (SIGKILL)" in broken[1]
    before = rows(folder / "broken")

    said = three_arms(folder).finish()
    assert said.count("done already") == 2
    assert "going on from" in said
    assert "Matched arms" in said
    mended = rows(folder / "broken")
    assert [row.status.attempt for row in mended.values()] == [2, 1, 1]
    assert all(row.generation_speedup for row in mended.values())

    killed, *others = mended
    assert [told(mended[name]) for name in others] == [told(before[name]) for name in others]
    assert told(mended[killed]) == told(whole[killed])
    assert {row.steps for row in mended.values()} == {STEPS}
    assert_same_steps(*(steps(records_of(arms, "k2-dapo")) for arms in (mended, whole)))


def assert_same_steps(got: list[Metrics], expected: list[Metrics]) -> None:
    """Beyond the table: every step, before the kill and after it, is as if there had been none."""
    for name in SAME:
        assert [step[name] for step in got] == [step[name] for step in expected], name
    for name in CLOSE:
        near = pytest.approx([step[name] for step in expected], abs=1e-5)
        assert [step[name] for step in got] == near, name
    assert len({round(step["policy/entropy"], 5) for step in expected}) == STEPS


def test_the_engine_accepts_more_of_the_trained_init(whole: Mapping[str, Row]) -> None:
    """Same policy, prompts and seeds; an accepted count of 0..k spreads by k / 2 at most."""
    random, trained = (steps(records_of(whole, f"k2-{init}"))[0] for init in ("random", "dapo"))
    assert random["rollout/tokens"] > 1500
    error = 2 / 2 * sqrt(1 / random["spec/num_drafts"] + 1 / trained["spec/num_drafts"])
    gain = trained["spec/acceptance_length"] - random["spec/acceptance_length"]
    assert gain > 5 * error


def test_stages_fill_the_step_and_accuracy_is_known(whole: Mapping[str, Row]) -> None:
    """An evaluation before the first step and one after the last."""
    for init in ("random", "dapo"):
        records = records_of(whole, f"k2-{init}")
        evaluated = [record for record in records if "eval/accuracy" in record.metrics]
        assert [record.step for record in evaluated] == [0, STEPS]
        for record in evaluated:
            assert 0.0 <= record.metrics["eval/accuracy"] <= 1.0
            assert 0.0 <= record.metrics["eval/stderr"] <= 0.5
            assert record.metrics["eval/num_prompts"] == 8
        timed = [record.metrics for record in records if "time/step_s" in record.metrics]
        assert len(timed) == STEPS
        for step in timed[1:]:
            stages_s = sum(step[f"time/{stage}_s"] for stage in STAGES)
            assert 0.98 * step["time/step_s"] <= stages_s <= step["time/step_s"]
