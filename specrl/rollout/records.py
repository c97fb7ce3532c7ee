"""What travels between `VllmEngine` (driver) and `EngineWorker` (actor process)."""

from dataclasses import dataclass

from specrl.types import FinishReason, Float32, SpecStats


@dataclass(frozen=True)
class SampleRequest:
    """One response to draw; `key` identifies it within a generate call."""

    key: int
    prompt_id: str
    prompt_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class FinishedSample:
    """One response; the fields are those of `specrl.types.Rollout`."""

    key: int
    token_ids: tuple[int, ...]
    logprobs: Float32
    text: str
    finish_reason: FinishReason
    version: int
    spec: SpecStats | None
    latency_s: float
    draft_steps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Advance:
    """What one `EngineWorker.advance` did.

    `finished` are the samples that ended during it, `unfinished` counts those still running or
    waiting. `tokens`, `num_drafts` and `num_accepted_tokens` are what this call added.
    """

    finished: tuple[FinishedSample, ...]
    unfinished: int
    tokens: int
    num_drafts: int
    num_accepted_tokens: int
