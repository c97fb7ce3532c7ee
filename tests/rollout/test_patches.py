"""Upstream still needs each patch, and each patch does what it is for."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from specrl.rollout import patches
from specrl.rollout.patches import cpu_sampler, own_head

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
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    with pytest.MonkeyPatch.context() as kept:
        for owner, names in (
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
