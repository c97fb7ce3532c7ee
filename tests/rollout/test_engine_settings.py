"""What an engine process is started with."""

from pathlib import Path
from typing import Any

import pytest

from specrl.config.rollout import RolloutConfig
from specrl.errors import EngineError, UserError
from specrl.rollout.environment import engine_environment, split_cores
from specrl.rollout.limits import room_tokens
from specrl.rollout.settings import EngineSettings, replica_settings
from specrl.rollout.start import engine_arguments


def test_replicas_and_runs_with_other_seeds_never_share_a_sampler_seed() -> None:
    seeds = [
        settings.seed
        for seed in (0, 1, 2)
        for settings in replica_settings(
            Path("m"), 64, RolloutConfig(name="vllm", replicas=3, seed=seed), None
        )
    ]
    assert len(set(seeds)) == 9


def test_engine_args_win_over_defaults_but_not_over_the_contract() -> None:
    settings = EngineSettings(
        model="m",
        max_model_len=64,
        engine_args={"enforce_eager": False, "max_num_seqs": 7, "worker_extension_cls": "other"},
    )
    arguments = engine_arguments(settings, on_cpu=True)
    assert arguments["enforce_eager"] is False
    assert arguments["max_num_seqs"] == 7
    assert arguments["worker_extension_cls"].startswith("specrl.rollout.")
    assert arguments["kv_cache_memory_bytes"] <= 2 * 1024**3


def test_what_the_contract_needs_cannot_be_given_as_an_engine_argument() -> None:
    contract = engine_arguments(EngineSettings(model="m", max_model_len=64), on_cpu=False)
    assert len(contract) > 5
    for name in contract:
        with pytest.raises(UserError, match=rf"rollout\.engine_args\.{name} is set by specrl"):
            RolloutConfig(name="vllm", engine_args={name: 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stop": ["\n", ""]}, r"rollout\.stop=.* has an empty string"),
        ({"stop_token_ids": [3, -1]}, r"rollout\.stop_token_ids=-1 .* at least 0"),
    ],
)
def test_a_stop_that_ends_nothing_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RolloutConfig(name="vllm", **wrong)


def test_a_gpu_engine_keeps_vllms_own_defaults() -> None:
    arguments = engine_arguments(EngineSettings(model="m", max_model_len=64), on_cpu=False)
    assert "enforce_eager" not in arguments
    assert "kv_cache_memory_bytes" not in arguments


@pytest.mark.parametrize(
    ("cores", "replicas", "split"),
    [
        ([0, 1, 2, 3], 2, [(0, 1), (2, 3)]),
        ([4, 5, 6], 2, [(4, 5), (6,)]),
        ([0], 2, [(0,), (0,)]),
        ([], 2, [(), ()]),
    ],
)
def test_cores_are_split_over_replicas(
    cores: list[int], replicas: int, split: list[tuple[int, ...]]
) -> None:
    assert split_cores(cores, replicas) == split


def test_the_environment_bounds_every_pool_of_threads() -> None:
    env = engine_environment(cores=[2, 3])
    assert env["OMP_NUM_THREADS"] == "2"
    assert env["NUMBA_NUM_THREADS"] == "1"
    assert env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert env.get("KMP_BLOCKTIME") == "1" or env.get("OMP_WAIT_POLICY") == "passive"
    assert all(
        Path(library).is_file() for library in env.get("LD_PRELOAD", "").split(":") if library
    )


def test_a_cpu_engine_keeps_the_memory_it_frees() -> None:
    env = engine_environment(cores=[0])
    assert "tcmalloc" in env.get("LD_PRELOAD", "") or env["MALLOC_MMAP_MAX_"] == "0"


def test_a_gpu_engine_preloads_nothing() -> None:
    assert "LD_PRELOAD" not in engine_environment(cores=[0], num_gpus=1)


@pytest.mark.parametrize(("prompt_tokens", "room"), [(1, 15), (15, 1)])
def test_a_response_fills_what_the_prompt_leaves(prompt_tokens: int, room: int) -> None:
    assert room_tokens("p", prompt_tokens, max_model_len=16) == room


@pytest.mark.parametrize(("prompt_tokens", "message"), [(16, "p has 16 tokens.*=16"), (0, "empty")])
def test_a_prompt_without_room_is_named(prompt_tokens: int, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        room_tokens("p", prompt_tokens, max_model_len=16)
