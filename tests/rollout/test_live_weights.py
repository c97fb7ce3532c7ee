"""What is live after a publish, and after one that was refused or broke off."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_engines import NGRAM, ToyEngine, start_toy
from rollout_toys import checksums, snapshot, toy, worst_logprob_error
from safetensors.torch import load_file, save_file

from specrl.errors import EngineError, PublishError
from specrl.rollout.patches import cpu_sampler
from specrl.rollout.settings import EngineSettings
from specrl.rollout.worker import EngineWorker
from specrl.types import Prompt, Rollout, Sampling, WeightSnapshot

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4
LONG = Prompt("long", "", tuple(range(8)) * 5, {})
"""Longer than a block of the prefix cache (32 tokens), so that stale keys and values would show."""
Tensors = dict[str, torch.Tensor]


def sampled(started: ToyEngine) -> list[Rollout]:
    return started.engine.generate([LONG], 16, Sampling(max_tokens=12, ignore_eos=True))


def test_a_publish_makes_exactly_the_new_weights_live(
    toy_engine: ToyEngine, tmp_path: Path
) -> None:
    sampled(toy_engine)
    for version, seed in ((2, 11), (3, 12)):
        model = toy(seed=seed)
        toy_engine.publish(model, version, tmp_path / str(version))
        rollouts = sampled(toy_engine)
        assert {rollout.versions for rollout in rollouts} == {(version,)}
        assert worst_logprob_error(model, rollouts) < TOLERANCE
        assert worst_logprob_error(toy_engine.model, rollouts) > 0.1
    toy_engine.publish(toy_engine.model, 1, tmp_path / "back")


def test_a_seed_draws_the_same_responses_again(toy_engine: ToyEngine, tmp_path: Path) -> None:
    def drawn(seed: int, folder: str) -> list[tuple[int, ...]]:
        toy_engine.publish(toy_engine.model, 1, tmp_path / folder)
        sampling = Sampling(max_tokens=20, ignore_eos=True, seed=seed)
        return [rollout.token_ids for rollout in toy_engine.engine.generate([LONG], 16, sampling)]

    first = drawn(3, "first")
    assert drawn(3, "again") == first
    assert drawn(4, "other") != first
    assert len(set(first)) > 1


def test_a_call_shares_its_prompts_and_finds_none_of_another_call(tied_engine: ToyEngine) -> None:
    def reused(samples: int) -> int:
        tied_engine.engine.generate([LONG], samples, Sampling(max_tokens=2, ignore_eos=True))
        return int(tied_engine.actor.call("reused_tokens"))

    reused(samples=1)
    assert [reused(samples=1), reused(samples=2)] == [0, 32]


def test_a_tied_output_layer_follows_the_embedding(tied_engine: ToyEngine, tmp_path: Path) -> None:
    model = toy(seed=11, tied=True)
    tied_engine.publish(model, 2, tmp_path / "new")
    assert worst_logprob_error(model, sampled(tied_engine)) < TOLERANCE
    tied_engine.publish(tied_engine.model, 1, tmp_path / "back")
    assert worst_logprob_error(tied_engine.model, sampled(tied_engine)) < TOLERANCE


def test_upstream_still_needs_the_packing_of_a_tied_output_layer(
    tied_engine: ToyEngine, tmp_path: Path
) -> None:
    model = toy(seed=11, tied=True)
    tied_engine.actor.call("skip_next_repacking")
    tied_engine.publish(model, 2, tmp_path / "new")
    error = worst_logprob_error(model, sampled(tied_engine))
    assert error > 0.1, "vLLM packs a tied output layer anew by itself"
    tied_engine.publish(tied_engine.model, 1, tmp_path / "back")


def flipped_byte(new: WeightSnapshot) -> WeightSnapshot:
    content = bytearray(new.path.read_bytes())
    content[-100] ^= 1
    new.path.write_bytes(content)
    return new


def truncated(new: WeightSnapshot) -> WeightSnapshot:
    new.path.write_bytes(new.path.read_bytes()[:-4])
    return new


def absent(new: WeightSnapshot) -> WeightSnapshot:
    new.path.unlink()
    return new


def rewritten(change: Callable[[Tensors], Any]) -> Callable[[WeightSnapshot], WeightSnapshot]:
    """The file and its checksums agree, but what they hold does not fit the engine."""

    def damage(new: WeightSnapshot) -> WeightSnapshot:
        tensors = load_file(new.path)
        change(tensors)
        path = new.path.with_name("changed.safetensors")
        save_file(tensors, path)
        return WeightSnapshot(new.version, path, checksums(path))

    return damage


def without_a_checksum(new: WeightSnapshot) -> WeightSnapshot:
    return replace(new, checksums=dict(list(new.checksums.items())[1:]))


NORM = "model.norm.weight"
DAMAGES = {
    "flipped byte": (flipped_byte, "checksum"),
    "truncated": (truncated, "no complete safetensors file"),
    "absent": (absent, "no complete safetensors file"),
    "missing tensor": (rewritten(lambda t: t.pop(NORM)), f"lacks 1 tensors, among them {NORM}"),
    "extra tensor": (rewritten(lambda t: t.update(odd=torch.ones(3))), "1 unexpected .* odd"),
    "wrong shape": (
        rewritten(lambda t: t.update({NORM: torch.ones(65)})),
        r"norm.weight has shape \(65,\), the engine's is \(64,\)",
    ),
    "wrong dtype": (
        rewritten(lambda t: t.update({NORM: t[NORM].half()})),
        "norm.weight has dtype float16, the engine's is float32; publish in rollout.dtype",
    ),
    "missing checksum": (without_a_checksum, "checksum list lacks 1 tensors"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_refused_and_the_old_version_stays_right(
    tied_engine: ToyEngine, tmp_path: Path, damage: str
) -> None:
    make, message = DAMAGES[damage]
    damaged = make(snapshot(toy(seed=11, tied=True), tmp_path / "new", version=2))
    with pytest.raises(PublishError, match=message):
        tied_engine.engine.load_weights(damaged)
    assert tied_engine.engine.version == 1
    rollouts = sampled(tied_engine)
    assert {rollout.versions for rollout in rollouts} == {(1,)}
    assert worst_logprob_error(tied_engine.model, rollouts) < TOLERANCE


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, TypeError])
def test_a_load_that_breaks_off_puts_the_old_weights_back(
    tied_engine: ToyEngine, tmp_path: Path, error: type[Exception]
) -> None:
    tied_engine.actor.call("break_next_load", error("the other half is lost"))
    with pytest.raises(PublishError, match=f"{error.__name__}: the other half is lost"):
        tied_engine.publish(toy(seed=11, tied=True), 6, tmp_path / "new")
    rollouts = sampled(tied_engine)
    assert {rollout.versions for rollout in rollouts} == {(1,)}
    assert worst_logprob_error(tied_engine.model, rollouts) < TOLERANCE


def test_an_engine_that_cannot_go_back_refuses_until_the_next_publish(
    tied_engine: ToyEngine, tmp_path: Path
) -> None:
    tied_engine.publish(tied_engine.model, 5, tmp_path / "old")
    shutil.rmtree(tmp_path / "old")
    tied_engine.actor.call("break_next_load", RuntimeError("the other half is lost"))
    with pytest.raises(PublishError, match="the other half is lost"):
        tied_engine.publish(toy(seed=11, tied=True), 6, tmp_path / "new")
    assert tied_engine.actor.call("version") is None
    with pytest.raises(EngineError, match="publish again"):
        sampled(tied_engine)
    with pytest.raises(EngineError, match="version 5 could not be put back"):
        tied_engine.actor.call("add", [], Sampling())

    model = toy(seed=12, tied=True)
    tied_engine.publish(model, 7, tmp_path / "newer")
    assert worst_logprob_error(model, sampled(tied_engine)) < TOLERANCE
    back = tied_engine.folder / "back"
    tied_engine.publish(tied_engine.model, 1, back)


def test_a_failure_inside_vllm_is_an_engine_error_and_the_engine_stays_usable(
    tied_engine: ToyEngine,
) -> None:
    for call in ("step", "add_request"):
        tied_engine.actor.call("break_next", call, KeyError("block 7"))
        with pytest.raises(EngineError, match=r"vLLM failed in .*KeyError: 'block 7'"):
            sampled(tied_engine)
    assert worst_logprob_error(tied_engine.model, sampled(tied_engine)) < TOLERANCE


class UnpatchableWorker(EngineWorker):
    """An engine whose vLLM could not be patched, as after a renaming upstream."""

    def __init__(self, settings: EngineSettings) -> None:
        cpu_sampler.install = lambda: None
        super().__init__(settings)


def test_speculation_without_the_patch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"speculation would not be exact.*use drafter=none"):
        start_toy(tmp_path, NGRAM, target=f"{__name__}:UnpatchableWorker")
