"""A request while the engine works on it."""

import time
from typing import Any, Literal

import numpy as np

from specrl.rollout.records import FinishedSample, SampleRequest
from specrl.rollout.spec_counts import Steps, cut_steps, spec_stats


class InFlight:
    """Collects what the engine's steps yield for one request.

    `metrics` is the scheduler's own record of the request's verification steps (None without
    speculation). It is held here because vLLM does not hand it out where a stop string ended the
    response.
    """

    def __init__(
        self, request: SampleRequest, engine_id: str, version: int, metrics: Any, decoded: bool
    ) -> None:
        """`decoded` says whether vLLM decodes this request's text itself."""
        self.engine_id = engine_id
        self._decoded = decoded
        self._request = request
        self._version = version
        self._metrics = metrics
        self._started_s = time.monotonic()
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._text: list[str] = []
        self._steps: list[tuple[int, int]] = []
        self._num_verified = 0

    def receive(self, completion: Any) -> tuple[int, int, int]:
        """Takes one step's output: how many tokens, drafts and accepted draft tokens it added."""
        new = completion.token_ids
        self._token_ids += new
        self._logprobs += [
            at[token].logprob for at, token in zip(completion.logprobs, new, strict=True)
        ]
        self._text.append(completion.text)
        if self._metrics is None or not new:
            return len(new), 0, 0
        drafted, accepted = self._verified()
        self._steps.append((drafted, accepted))
        return len(new), int(drafted > 0), accepted

    def _verified(self) -> tuple[int, int]:
        """Draft tokens that this step proposed and accepted; 0 where it had none."""
        metrics, before = self._metrics, self._num_verified
        self._num_verified = len(metrics.per_step_drafted)
        first = not self._steps
        # The first step has nothing to verify, but vLLM may have padded it as if it had.
        if first or self._num_verified == before:
            return 0, 0
        assert self._num_verified == before + 1, "one step verified two drafts of a request"
        return metrics.per_step_drafted[before], metrics.per_step_accepted[before]

    def finish(self, reason: str, tokenizer: Any) -> FinishedSample:
        """The response. `tokenizer` decodes what vLLM did not (None leaves the text empty)."""
        finish_reason: Literal["stop", "length"] = "length" if reason == "length" else "stop"
        text = "".join(self._text)
        if not self._decoded and tokenizer is not None:
            text = tokenizer.decode(self._token_ids, skip_special_tokens=True)
        steps = self._cut()
        return FinishedSample(
            key=self._request.key,
            token_ids=tuple(self._token_ids),
            logprobs=np.asarray(self._logprobs, dtype=np.float32),
            text=text,
            finish_reason=finish_reason,
            version=self._version,
            spec=None if steps is None else spec_stats(steps, len(self._token_ids), self._k()),
            latency_s=time.monotonic() - self._started_s,
            draft_steps=steps or (),
        )

    def _cut(self) -> Steps | None:
        return None if self._metrics is None else cut_steps(self._steps, len(self._token_ids))

    def _k(self) -> int:
        return int(self._metrics.num_spec_tokens)
