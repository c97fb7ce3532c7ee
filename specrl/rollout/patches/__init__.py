"""Corrections of vLLM, one file each.

`sampling_problem` says what is still wrong in this process; an empty answer is the licence to
speculate. It checks behaviour, not names.
"""

from specrl.rollout.patches import cpu_sampler, own_head


def install() -> None:
    """Installs what this platform needs."""
    from vllm.platforms import current_platform

    own_head.install()
    if current_platform.is_cpu():
        cpu_sampler.install()


def sampling_problem() -> str | None:
    """What speculation would get wrong in this process; None where it is right.

    On a GPU vLLM's own kernels do it, unpatched.
    """
    from vllm.platforms import current_platform

    return cpu_sampler.problem() if current_platform.is_cpu() else None
