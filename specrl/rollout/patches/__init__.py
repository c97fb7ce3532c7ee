"""Corrections of vLLM's CPU build, one file each.

`sampling_problem` says what is still wrong in this process; an empty answer is the licence to
speculate. It checks behaviour, not names, so it also holds once upstream needs no patch.
"""

import os

from specrl.rollout.patches import expand_batch, padded_drafts, zero_rows

UNPATCHED = "SPECRL_TEST_UNPATCHED_SAMPLING"
"""Set to 1 only by the test that shows the stock build to be wrong."""


def install() -> None:
    """Installs the sampling patches on a CPU, unless `UNPATCHED` asks for the stock build."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and os.environ.get(UNPATCHED) != "1":
        expand_batch.install()
        zero_rows.install()
        padded_drafts.install()


def sampling_problem() -> str | None:
    """What speculation would get wrong in this process; None where it is right."""
    if os.environ.get(UNPATCHED) == "1":
        return None
    return expand_batch.problem() or zero_rows.problem() or padded_drafts.problem()
