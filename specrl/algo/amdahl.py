"""What bounds the gain: Amdahl's law for RL steps (arXiv:2604.26779, section 2.2)."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from specrl.errors import UserError

Ratio = TypeVar("Ratio", float, NDArray[np.float64])


def whole_speedup(share: Ratio, part_speedup: Ratio) -> Ratio:
    """Of a whole in which the part that was `share` of it runs that much faster; no checks."""
    return 1.0 / (share / part_speedup + 1.0 - share)


def step_speedup(generation_share: float, generation_speedup: float) -> float:
    """Step speedup when generation, `generation_share` of the step, runs that much faster.

    With `generation_speedup` = acceptance length this is the paper's upper bound: every
    verification step would cost no more than an autoregressive one.
    """
    if not 0.0 <= generation_share <= 1.0:
        raise UserError(f"generation_share={generation_share} is outside [0, 1]")
    if generation_speedup <= 0.0:
        raise UserError(f"generation_speedup={generation_speedup} must be above 0")
    return whole_speedup(generation_share, generation_speedup)


def verification_cost(acceptance_length: float, generation_speedup: float) -> float:
    """c(k): what one draft-and-verify step costs in autoregressive steps, alpha / S."""
    if generation_speedup <= 0.0:
        raise UserError(f"generation_speedup={generation_speedup} must be above 0")
    return acceptance_length / generation_speedup
