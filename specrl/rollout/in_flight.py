"""A request while the engine works on it."""

import time
from typing import Any, Literal

import numpy as np

from specrl.rollout.records import FinishedSample, SampleRequest
from specrl.rollout.spec_counts import spec_stats


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
        self._num_steps = 0
        self._num_verified = 0
        self._num_padded = 0

    def receive(self, completion: Any) -> tuple[int, int, int]:
        """Takes one step's output: how many tokens, drafts and accepted draft tokens it added."""
        new = completion.token_ids
        self._token_ids += new
        self._logprobs += [
            at[token].logprob for at, token in zip(completion.logprobs, new, strict=True)
        ]
        self._text.append(completion.text)
        self._num_steps += bool(new)
        if self._metrics is None:
            return len(new), 0, 0
        if self._num_steps == 1:
            # The first step has nothing to verify, but vLLM may have padded it as if it had.
            self._num_padded = self._num_verified = len(self._metrics.per_step_accepted)
        accepted = self._metrics.per_step_accepted[self._num_verified :]
        self._num_verified += len(accepted)
        return len(new), len(accepted), sum(accepted)

    def finish(self, reason: str, tokenizer: Any) -> FinishedSample:
        """The response. `tokenizer` decodes what vLLM did not (None leaves the text empty)."""
        finish_reason: Literal["stop", "length"] = "length" if reason == "length" else "stop"
        text = "".join(self._text)
        if not self._decoded and tokenizer is not None:
            text = tokenizer.decode(self._token_ids, skip_special_tokens=True)
        return FinishedSample(
            key=self._request.key,
            token_ids=tuple(self._token_ids),
            logprobs=np.asarray(self._logprobs, dtype=np.float32),
            text=text,
            finish_reason=finish_reason,
            version=self._version,
            spec=self._spec(),
            latency_s=time.monotonic() - self._started_s,
        )

    def _spec(self) -> Any:
        if self._metrics is None:
            return None
        return spec_stats(
            self._metrics.per_step_drafted[self._num_padded :],
            self._metrics.per_step_accepted[self._num_padded :],
            num_decode_steps=self._num_steps,
            num_tokens=len(self._token_ids),
            k=self._metrics.num_spec_tokens,
        )
