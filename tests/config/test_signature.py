"""The run folder is named after what determines the results, and nothing else."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.config.signature import run_folder, run_name, signature

OURS = min(os.sched_getaffinity(0))
SAME = [
    ["output_dir=/elsewhere", "name=other", "steps=7", "rerun=true", "checkpoint.every=1"],
    ["tracking=none", "cluster=slurm_cpu", "model.cache_dir=/cache"],
    ["tracking.uri=http://server", "cluster.temp_dir=/tmp/r", "cluster.name=mine"],
    [f"rollout.cores=[{OURS}]", f"learner.cores=[{OURS}]"],
    ["drafter.on_collapse=fail", "drafter.remeasure=true"],
    ["adaptation.every=2", "adaptation.tokens=64", "adaptation.learning_rate=1e-5"],
]
OTHER = [
    "seed=1",
    "rollout.temperature=0.7",
    "learner.learning_rate=2e-6",
    "drafter=ngram",
    "init=ultrachat",
    "adaptation=online",
    "evaluation.every=5",
    "cluster=local_gpu",
    "cluster.hardware=h100",
    "+rollout.engine_args.max_num_seqs=4",
]


@cache
def signature_of(*overrides):
    return signature(load(overrides))


@pytest.mark.parametrize("overrides", SAME)
def test_what_does_not_change_results_keeps_the_signature(overrides):
    assert signature_of(*overrides) == signature_of()


@pytest.mark.parametrize("override", OTHER)
def test_what_changes_results_changes_the_signature(override):
    assert signature_of(override) != signature_of()


def test_a_run_may_move_to_more_nodes():
    two, four = (
        load(["cluster=slurm_cpu", f"cluster.nodes={nodes}", f"cluster.partition=p{nodes}"])
        for nodes in (2, 4)
    )
    assert signature(two) == signature(four)


def test_the_draft_length_counts_for_a_drafter_that_uses_it():
    three, five = load(["drafter=ngram"]), load(["drafter=ngram", "drafter.k=5"])
    assert signature(three) != signature(five)
    assert run_name(five).startswith("arithmetic-smollm2_135m-ngram-k5-")


@pytest.mark.parametrize("override", ["drafter.k=5", "adaptation.every=2"])
def test_what_autoregressive_decoding_does_not_use_does_not_count(override):
    assert signature_of("drafter=none", override) == signature_of("drafter=none")


def test_how_a_draft_adapts_counts_where_it_does():
    online = ["adaptation=online"]
    assert signature(load([*online, "adaptation.every=2"])) != signature(load(online))


def test_a_learned_draft_names_its_init_and_adaptation():
    config = load(["init=ultrachat", "adaptation=online", "drafter.k=auto"])
    name = "arithmetic-smollm2_135m-eagle3-kauto-ultrachat-online-"
    assert run_name(config).startswith(name)


def test_the_signature_does_not_depend_on_home_or_on_key_order(monkeypatch):
    ordered = load(["+rollout.engine_args={a: 1, b: 2}"])
    monkeypatch.setenv("HOME", "/home/somebody")
    assert signature(load(["+rollout.engine_args={b: 2, a: 1}"])) == signature(ordered)


KNOWN = ["debug=tiny", "drafter=eagle3", "drafter.k=5", "init=dapo", "adaptation=online"]
FOREIGN = [*KNOWN, 'task.instruction="é Ü 日"']
KNOWN_NAME = "arithmetic-tiny-eagle3-k5-dapo-online-4028c8ec"
IT_CHANGED = (
    "every finished run will be run again, as its folder has another name; if that is meant, write "
    "the new one here"
)


def test_the_signature_of_a_known_config_is_the_one_it_always_had():
    """Also a new knob or another default changes it, and should: the runs are others."""
    assert run_name(load(KNOWN)) == KNOWN_NAME, IT_CHANGED


@pytest.mark.parametrize("machine", [0, 1])
def test_the_signature_is_the_same_in_other_processes_places_and_languages(machine, tmp_path):
    """Hash seed, folder, home, user, language, clock zone, number of usable cores."""
    code = (
        f"import os; os.sched_setaffinity(0, {{{OURS}}});"
        "from specrl.config.compose import load; from specrl.config.signature import run_name;"
        f"print(run_name(load({KNOWN})), run_name(load({FOREIGN})))"
    )
    (tmp_path / str(machine)).mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONHASHSEED": str(machine * 4711),
        "HOME": f"/home/user{machine}",
        "USER": f"user{machine}",
        "LC_ALL": ("C", "tr_TR.UTF-8")[machine],
        "PYTHONIOENCODING": "utf-8",
        "TZ": ("UTC", "Asia/Tokyo")[machine],
        "SPECRL_CACHE": f"/cache{machine}",
        "CUDA_VISIBLE_DEVICES": ("", "0,1")[machine],
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / str(machine),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [KNOWN_NAME, run_name(load(FOREIGN))]


def test_the_folder_is_readable_and_below_output_dir():
    config = load(["drafter=none", "output_dir=/runs"])
    assert run_folder(config) == Path("/runs") / f"arithmetic-smollm2_135m-none-{signature(config)}"
    assert len(signature(config)) == 8


def test_a_label_with_slashes_stays_one_folder():
    folder = run_folder(load(["drafter=none", "model.name=org/my model", "output_dir=/runs"]))
    assert folder.parent == Path("/runs")
    assert folder.name.startswith("arithmetic-org_my_model-none-")
