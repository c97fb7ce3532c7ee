"""The run folder is named after what determines the results, and nothing else."""

import os
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.config.signature import run_folder, run_name, signature

OURS = min(os.sched_getaffinity(0))
SAME = [
    "output_dir=/elsewhere",
    "name=other",
    "steps=7",
    "rerun=true",
    "checkpoint.every=1",
    "tracking=none",
    "tracking.uri=http://server",
    "model.cache_dir=/cache",
    "cluster.temp_dir=/tmp/r",
    "cluster.name=mine",
    "cluster=slurm_cpu",
    f"rollout.cores=[{OURS}]",
    f"learner.cores=[{OURS}]",
    "drafter.on_collapse=fail",
    "drafter.remeasure=true",
    "adaptation.every=2",
    "adaptation.tokens=64",
    "adaptation.learning_rate=1e-4",
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


@pytest.mark.parametrize("override", SAME)
def test_what_does_not_change_results_keeps_the_signature(override):
    assert signature(load([override])) == signature(load())


@pytest.mark.parametrize("override", OTHER)
def test_what_changes_results_changes_the_signature(override):
    assert signature(load([override])) != signature(load())


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
    plain = ["drafter=none"]
    assert signature(load([*plain, override])) == signature(load(plain))


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


def test_the_folder_is_readable_and_below_output_dir():
    config = load(["drafter=none", "output_dir=/runs"])
    assert run_folder(config) == Path("/runs") / f"arithmetic-smollm2_135m-none-{signature(config)}"
    assert len(signature(config)) == 8


def test_a_label_with_slashes_stays_one_folder():
    folder = run_folder(load(["drafter=none", "model.name=org/my model", "output_dir=/runs"]))
    assert folder.parent == Path("/runs")
    assert folder.name.startswith("arithmetic-org_my_model-none-")
