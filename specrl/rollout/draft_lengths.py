"""Draft length by concurrency, as vLLM's scheduler looks it up."""

from specrl.algo.draft_length import Schedule
from specrl.errors import EngineError


def check_schedule(schedule: Schedule, longest: int) -> None:
    """Raises `EngineError` unless bounds ascend and every k is in 0..`longest`."""
    bounds = [bound for bound, _ in schedule]
    if not bounds or bounds[0] < 1 or bounds != sorted(set(bounds)):
        raise EngineError(
            f"draft lengths {list(schedule)} need bounds of running requests that ascend from 1"
        )
    beyond = [k for _, k in schedule if not 0 <= k <= longest]
    if beyond:
        raise EngineError(
            f"draft length {beyond[0]} is not allowed, this engine drafts up to {longest} tokens; "
            f"use 0..{longest}"
        )


def lookup(schedule: Schedule, max_requests: int) -> list[int]:
    """k by number of running requests, entry 0 unused; see `RolloutEngine.set_draft_lengths`."""
    lengths = [0]
    for bound, k in schedule:
        lengths += [k] * (bound + 1 - len(lengths))
    lengths += [schedule[-1][1]] * (max_requests + 1 - len(lengths))
    return lengths[: max_requests + 1]
