"""Upstream still needs each patch, and each patch does what it is for."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from specrl.rollout import patches
from specrl.rollout.patches import expand_batch, padded_drafts, zero_rows

pytestmark = pytest.mark.slow

PATCHES = [expand_batch, zero_rows, padded_drafts]


@pytest.fixture(scope="module")
def cpu_overrides() -> None:
    """What vLLM's CPU worker does at its start, without an engine."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    current_platform.register_triton_kernel_overrides()


@pytest.fixture(autouse=True)
def stock(cpu_overrides: None) -> Iterator[None]:  # noqa: ARG001  # for its effect
    """vLLM as it comes, before and after the test."""
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.sample.ops import topk_topp_sampler

    with pytest.MonkeyPatch.context() as kept:
        for module, names in (
            (
                rejection_sampler,
                ("expand_batch_to_tokens", "apply_top_k_top_p", "rejection_sample"),
            ),
            (topk_topp_sampler, ("apply_top_k_top_p",)),
        ):
            for name in names:
                kept.setattr(module, name, getattr(module, name))
        yield


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.__name__.rpartition(".")[2])
def test_upstream_still_needs_the_patch(patch: ModuleType) -> None:
    assert patch.problem() is not None, f"vLLM is right without {patch.__name__}: drop it"
    patch.install()
    assert patch.problem() is None


def test_all_patches_together_leave_no_problem_also_when_installed_twice() -> None:
    patches.install()
    patches.install()
    assert patches.sampling_problem() is None
