"""What no run can start with is told before anything starts, and nothing is written for it."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from specrl.config.compose import load
from specrl.errors import UserError
from specrl.sweep.possible import check_possible


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of drafts that are empty, without weights, and of another vocabulary."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("SPECRL_CACHE", str(tmp_path / "cache"))
    for name in ("empty", "bare", "other"):
        (tmp_path / name).mkdir()
    for name in ("bare", "other"):
        (tmp_path / name / "config.json").write_text('{"vocab_size": 9}')
    (tmp_path / "dangling").symlink_to("/nowhere")
    save_file({"a": np.zeros(1)}, tmp_path / "other" / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cluster=local_gpu"], "need 2 GPUs and this machine has 0; use cluster=local"),
        (["cluster.temp_dir=/proc/x"], "cluster.temp_dir=/proc/x: nothing can be written there"),
        ([f"cluster.temp_dir=/tmp/{'x' * 90}"], "use a folder of at most 43 bytes"),
        (["output_dir=/proc/x"], "set output_dir"),
        ([f"output_dir={'x' * 300}"], "File name too long"),
        (["output_dir=dangling/x"], "set output_dir"),
        (["model.cache_dir=/proc/x"], "set model.cache_dir"),
        (["model.cache_dir=other/config.json"], "set model.cache_dir"),
        (["+rollout.engine_args.max_num_seq=3"], "did you mean max_num_seqs?"),
        (["+rollout.engine_args.tensor_parallel_size=true"], "use a whole number"),
        (["task.generators=[no]"], "task.generators=no is not known"),
        (["+task.generator_args.no=1"], "task.generator_args.no is not known to chain_sum"),
        (["learner.tensor_parallel=3"], "does not divide the model's 8 attention heads"),
        (["model=qwen3_235b_a22b"], "Qwen3MoeForCausalLM needs expert parallelism"),
        (["model=qwen3_8b", "model.path=empty"], "model.path=empty has no config.json"),
        (["model=qwen3_8b", "model.path=./no"], "model.path=./no is neither a folder nor a hub id"),
        (["model.tiny.vocab_size=4"], "model.tiny.vocab_size=4 must be"),
        (["model.tiny.vocab_size=10000000000000"], "must be a number from 8 to 1000000"),
        (["drafter=draft_model", "drafter.model=empty"], "drafter.model=empty has no config.json"),
        (["drafter=draft_model", "drafter.model=./no"], "drafter.model=./no is neither a folder"),
        (["drafter=draft_model", "drafter.model=bare"], "bare has no *.safetensors"),
        (["drafter=draft_model", "drafter.model=other"], "other has a vocabulary of 9 tokens"),
        (["drafter=eagle3", "init=checkpoint", "init.path=empty"], "init.path=empty has no config"),
        (["drafter=eagle3", "init=checkpoint", "init.path=bare"], "init.path=bare has no *.safet"),
        (["drafter=eagle3", "init=ultrachat", "init.path=./no.jsonl"], "init.path=./no.jsonl is"),
        (["task=gsm8k", "task.train_data=./no.jsonl"], "task.train_data=./no.jsonl is neither"),
    ],
)
def test_it_is_one_line_and_leaves_nothing(place: Path, words: list[str], says: str) -> None:
    config = load(["model=tiny", "drafter=none", *words])
    with pytest.raises(UserError) as refused:
        check_possible(config)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in place.iterdir()) == ["bare", "dangling", "empty", "other"]


@pytest.mark.parametrize(
    "words",
    [
        ["model=qwen3_8b", "model.path=/on/nodes", "drafter=none"],
        ["model=tiny", "drafter=draft_model", "drafter.model=/on/nodes"],
        ["model=tiny", "init=checkpoint", "init.path=/on/nodes"],
        ["model=tiny", "drafter=none", "task=gsm8k", "task.train_data=/on/nodes.jsonl"],
    ],
)
def test_what_only_nodes_of_a_cluster_may_see_passes_there(place: Path, words: list[str]) -> None:
    check_possible(load([*words, f"output_dir={place}", "cluster=slurm_cpu"]))
    with pytest.raises(UserError, match="/on/nodes"):
        check_possible(load([*words, f"output_dir={place}"]))


def test_what_can_start_passes_and_leaves_nothing(place: Path) -> None:
    for words in (["drafter=eagle3"], ["drafter=draft_model", "drafter.model=someone/draft"]):
        check_possible(load(["model=tiny", "output_dir=new/place", *words]))
    assert sorted(path.name for path in place.iterdir()) == ["bare", "dangling", "empty", "other"]
