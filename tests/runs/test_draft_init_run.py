"""A draft init for real: built by its own command, found by a sweep over k."""

import subprocess
import sys
from pathlib import Path

import pytest

from specrl.draft_init import read_record
from specrl.drafter.eagle3_folder import check_folder
from specrl.telemetry.jsonl import read_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TINY = [
    "debug=tiny",
    "model.tiny.num_hidden_layers=4",
    "drafter=eagle3",
    "drafter.vocab_size=64",
    "init=dapo",
    "init.num_prompts=24",
    "init.samples_per_prompt=2",
    "init.passes=4",
    "init.heldout_prompts=8",
    "rollout.max_tokens=32",
    "tracking=none",
    "steps=1",
    "evaluation.every=0",
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


def test_an_init_is_built_once_and_every_k_of_a_sweep_starts_from_it(tmp_path: Path) -> None:
    built = said_by("init_draft", tmp_path)
    (folder,) = (tmp_path / "cache" / "drafts").glob("tiny-eagle3-dapo-24-*")
    assert str(folder) in built
    record = read_record(folder)
    assert record is not None
    assert record.responses == 48
    assert record.trained_tokens == 4 * record.response_tokens
    assert record.acceptance[2] > record.acceptance_before[2]
    (model,) = (tmp_path / "cache").glob("tiny-*")
    check_folder(folder, model, (0, 2, 3))

    sweep = said_by("train", tmp_path, "-m", "drafter.k=1,2")
    assert "building a draft" not in sweep
    for k in (1, 2):
        (run,) = (tmp_path / "runs").glob(f"*-eagle3-k{k}-*")
        first = read_run(run).records[0].metrics
        promised = first["init/acceptance_length/probabilistic"]
        assert promised == pytest.approx(record.acceptance[k - 1])
        assert first["init/prompts"] == 24
        assert first["spec/drafted_pos_0"] > 0
        assert ("spec/drafted_pos_1" in first) == (k == 2)
