"""Upstream still needs each patch, and each patch does what it is for."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specrl.rollout import patches
from specrl.rollout.patches import cpu_kernels, cpu_sampler, own_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cpu_overrides() -> None:
    """What vLLM's CPU worker does at its start, without an engine."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    with pytest.MonkeyPatch.context() as hidden:
        # vLLM looks into all of every loaded module, and numba's llvmlite does not let it. Other
        # tests load that here; an engine's process has not when its worker starts.
        for name in [name for name in sys.modules if name.startswith("llvmlite")]:
            hidden.delitem(sys.modules, name)
        current_platform.register_triton_kernel_overrides()


@pytest.fixture(autouse=True)
def stock(cpu_overrides: None) -> Iterator[None]:  # noqa: ARG001  # for its effect
    """vLLM as it comes, before and after the test."""
    from vllm.model_executor.layers.activation import SiluAndMul
    from vllm.model_executor.layers.layernorm import RMSNorm
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    with pytest.MonkeyPatch.context() as kept:
        for owner, names in (
            (RMSNorm, ["forward_cpu"]),
            (SiluAndMul, ["forward_cpu"]),
            (Sampler, ["forward"]),
            (RejectionSampler, ["forward"]),
            (SpecDecodeBaseProposer, ["_sample_draft_tokens", "_maybe_share_lm_head"]),
        ):
            for name in names:
                kept.setattr(owner, name, getattr(owner, name))
        yield


def test_upstream_still_needs_the_cpu_sampler() -> None:
    assert cpu_sampler.problem() is not None, "vLLM's CPU build verifies rightly by itself"
    cpu_sampler.install()
    assert cpu_sampler.problem() is None


def shares_an_equal_head() -> bool:
    """Whether vLLM puts the policy's output layer in the place of a draft's that equals it."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    policy, draft = torch.nn.Module(), torch.nn.Module()
    for model in (policy, draft):
        model.model = torch.nn.Module()
        model.lm_head = torch.nn.Linear(2, 3, bias=False)
        torch.nn.init.ones_(model.lm_head.weight)
    draft.has_own_lm_head = True
    config = SimpleNamespace(speculative_config=None)
    proposer = SimpleNamespace(model=draft, vllm_config=config, use_local_argmax_reduction=False)
    SpecDecodeBaseProposer._maybe_share_lm_head(proposer, policy)
    return draft.lm_head is policy.lm_head


def test_upstream_still_needs_a_draft_to_keep_its_own_head() -> None:
    assert shares_an_equal_head(), "vLLM leaves a draft its own output layer by itself"
    own_head.install()
    assert not shares_an_equal_head()


def test_all_patches_together_leave_no_problem_also_when_installed_twice() -> None:
    patches.install()
    patches.install()
    assert patches.sampling_problem() is None


PRECISION = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
"""Largest error of one element, of its size: of bf16 two roundings."""


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", [(37, 576), (5, 9, 64)])
def test_the_kernels_compute_what_the_native_path_does(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.activation import SiluAndMul
    from vllm.model_executor.layers.layernorm import RMSNorm

    cpu_kernels.install()
    torch.manual_seed(0)
    x, residual = (torch.randn(shape).mul(3).to(dtype) for _ in range(2))
    # As a head of queries comes: a part of a row of queries, keys and values.
    part = torch.cat([x, x], dim=-1)[..., : shape[-1]]
    with set_current_vllm_config(VllmConfig()):
        norm, activation = RMSNorm(shape[-1], eps=1e-5, dtype=dtype), SiluAndMul()
        norm.weight.data.uniform_(0.5, 1.5)
        cases = [
            (norm.forward_cpu(part), rms_norm(x, norm)),
            (norm.forward_cpu(x.clone(), residual.clone())[0], rms_norm(x + residual, norm)),
            (norm.forward_cpu(x.clone(), residual.clone())[1], x.double() + residual.double()),
            (activation.forward_cpu(x), silu_and_mul(x)),
        ]
    for ours, right in cases:
        assert ours.dtype == dtype
        scale = right.abs().clamp(min=0.1)
        assert ((ours.double() - right).abs() / scale).max() < PRECISION[dtype]


def test_a_norm_leaves_what_it_is_given() -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.layernorm import RMSNorm

    cpu_kernels.install()
    given = torch.randn(2, 7, 64)
    x, residual = given.clone()
    with set_current_vllm_config(VllmConfig()):
        RMSNorm(64, dtype=torch.float32).forward_cpu(x, residual)
    assert torch.equal(torch.stack([x, residual]), given)


def rms_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.weight.data.double()


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.double().chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def test_the_engine_takes_the_kernels() -> None:
    from vllm.model_executor.layers.activation import SiluAndMul
    from vllm.model_executor.layers.layernorm import RMSNorm

    patches.install()
    assert RMSNorm.forward_cpu is cpu_kernels._rms_norm
    assert SiluAndMul.forward_cpu is cpu_kernels._silu_and_mul
