"""Corrections of vLLM's CPU build, one file each.

`sampling_problem` says what is still wrong in this process; an empty answer is the licence to
speculate. It checks behaviour, not names, so it also holds once upstream needs no patch.
"""

from specrl.rollout.patches import expand_batch, padded_drafts, zero_rows


def install() -> None:
    """Installs the sampling patches on a CPU."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        expand_batch.install()
        zero_rows.install()
        padded_drafts.install()


def sampling_problem() -> str | None:
    """What speculation would get wrong in this process; None where it is right."""
    return expand_batch.problem() or zero_rows.problem() or padded_drafts.problem()
