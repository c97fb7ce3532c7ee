"""The rollout engine as the loop sees it: one or more vLLM replicas behind actor handles."""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from specrl.errors import EngineError, PublishError, RunError
from specrl.protocols import Actor, Future, OnProgress
from specrl.rollout.limits import room_tokens
from specrl.rollout.records import Advance, FinishedSample, SampleRequest
from specrl.types import GenerationProgress, Metrics, Prompt, Rollout, Sampling, WeightSnapshot

CALLS_AHEAD = 2
"""`advance` calls kept queued at each replica, so that none waits for the driver to come round."""


class VllmEngine:
    """Spreads samples over replicas, each a `specrl.rollout.worker.EngineWorker` in an actor."""

    def __init__(self, replicas: Sequence[Actor], max_model_len: int) -> None:
        if not replicas:
            raise EngineError(
                "an engine needs at least one replica; set rollout.replicas to 1 or more"
            )
        self._replicas = list(replicas)
        self._max_model_len = max_model_len
        self._live: WeightSnapshot | None = None

    @property
    def version(self) -> int | None:
        """Version of the live weights; None until the first successful `load_weights`."""
        return None if self._live is None else self._live.version

    def wait_ready(self) -> None:
        """Returns when every replica has started; raises what kept one from starting."""
        self._call_all("version")

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples_per_prompt: int,
        sampling: Sampling,
        on_progress: OnProgress | None = None,
    ) -> list[Rollout]:
        """Rollouts in order of (prompt, sample).

        Raises `EngineError` before anything is generated when no version is live everywhere or a
        prompt leaves no room. Whatever ends the call early, running requests are dropped and the
        engine stays usable.
        """
        for prompt in prompts:
            room_tokens(prompt.id, len(prompt.token_ids), self._max_model_len)
        self._check_versions()
        requests = [
            SampleRequest(group * samples_per_prompt + sample, prompt.id, prompt.token_ids)
            for group, prompt in enumerate(prompts)
            for sample in range(samples_per_prompt)
        ]
        finished = self._run(requests, sampling, on_progress)
        return [
            _rollout(prompts[key // samples_per_prompt], samples_per_prompt, finished[key])
            for key in range(len(requests))
        ]

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Every replica verifies the snapshot, then all make it live.

        Raises `PublishError` with the old version live on every replica.
        """
        if not self._replicas:
            raise PublishError(f"version {snapshot.version} finds the engine closed")
        _, error = _outcomes([r.submit("stage_weights", snapshot) for r in self._replicas])
        if error is not None:
            raise PublishError(f"version {snapshot.version} was refused: {error}") from error
        loaded, error = _outcomes([r.submit("load_weights", snapshot) for r in self._replicas])
        if error is not None:
            self._put_back([r for r, ok in zip(self._replicas, loaded, strict=True) if ok])
            raise PublishError(f"version {snapshot.version} did not load: {error}") from error
        self._live = snapshot

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        """Draft length by concurrency of a replica; see `RolloutEngine`.

        Raises `EngineError` for a schedule out of order or a k above the drafter's own.
        """
        futures = [r.submit("set_draft_lengths", tuple(schedule)) for r in self._replicas]
        for future in futures:
            future.result()

    def metrics(self) -> Metrics:
        """Nothing: what an engine counts is in its rollouts."""
        return {}

    def close(self) -> None:
        """Ends the engines, never raises; the actors themselves end with their cluster."""
        replicas, self._replicas, self._live = self._replicas, [], None
        for replica in replicas:
            # What ended the run must stay the error that is seen.
            with suppress(Exception):
                replica.submit("close").result()

    def _check_versions(self) -> None:
        if self._live is None:
            raise EngineError("no weights are live; publish a version before generating")
        versions = self._call_all("version")
        if any(version != self._live.version for version in versions):
            names = [replica.name for replica in self._replicas]
            live = ", ".join(f"{n}: {v}" for n, v in zip(names, versions, strict=True))
            raise EngineError(
                f"replicas do not serve version {self._live.version} ({live}); publish again"
            )

    def _run(
        self, requests: Sequence[SampleRequest], sampling: Sampling, on_progress: OnProgress | None
    ) -> dict[int, FinishedSample]:
        try:
            shares = _shares(requests, len(self._replicas))
            for future in [
                replica.submit("add", share, sampling)
                for replica, share in zip(self._replicas, shares, strict=True)
            ]:
                future.result()
            return self._poll(len(requests), on_progress)
        except BaseException:
            # Also on Ctrl-C: a request left behind would run into the next call's results.
            _outcomes([replica.submit("abort") for replica in self._replicas])
            raise

    def _poll(self, total: int, on_progress: OnProgress | None) -> dict[int, FinishedSample]:
        progress = _Progress(total)
        calls = deque(
            (replica, replica.submit("advance"))
            for _ in range(CALLS_AHEAD)
            for replica in self._replicas
        )
        while calls:
            replica, future = calls.popleft()
            advance: Advance = future.result()
            if advance.unfinished:
                calls.append((replica, replica.submit("advance")))
            progress.take(advance)
            if on_progress is not None:
                on_progress(progress.now())
        if len(progress.finished) != total:
            raise EngineError(f"{len(progress.finished)} of {total} samples came back")
        return progress.finished

    def _put_back(self, replicas: Sequence[Actor]) -> None:
        """A replica that cannot go back refuses to generate, as its version then differs."""
        if self._live is None:
            _outcomes([replica.submit("forget_version") for replica in replicas])
        else:
            _outcomes([replica.submit("load_weights", self._live) for replica in replicas])

    def _call_all(self, method: str) -> list[Any]:
        futures = [replica.submit(method) for replica in self._replicas]
        return [future.result() for future in futures]


class _Progress:
    """Sums what the replicas report during one generate call."""

    def __init__(self, total: int) -> None:
        self.finished: dict[int, FinishedSample] = {}
        self._total = total
        self._tokens = 0
        self._drafts = 0
        self._accepted = 0
        self._started_s = time.monotonic()

    def take(self, advance: Advance) -> None:
        self.finished |= {sample.key: sample for sample in advance.finished}
        self._tokens += advance.tokens
        self._drafts += advance.num_drafts
        self._accepted += advance.num_accepted_tokens

    def now(self) -> GenerationProgress:
        return GenerationProgress(
            finished=len(self.finished),
            total=self._total,
            tokens=self._tokens,
            elapsed_s=time.monotonic() - self._started_s,
            acceptance_length=1 + self._accepted / self._drafts if self._drafts else None,
        )


def _shares(requests: Sequence[SampleRequest], replicas: int) -> list[list[SampleRequest]]:
    """Runs of nearly equal length: the samples of a prompt share a replica's prefix cache."""
    bounds = [len(requests) * replica // replicas for replica in range(replicas + 1)]
    return [list(requests[a:b]) for a, b in pairwise(bounds)]


def _rollout(prompt: Prompt, samples_per_prompt: int, finished: FinishedSample) -> Rollout:
    group, sample = divmod(finished.key, samples_per_prompt)
    return Rollout(
        prompt=prompt,
        group=group,
        sample=sample,
        token_ids=finished.token_ids,
        rollout_logprobs=finished.logprobs,
        text=finished.text,
        finish_reason=finished.finish_reason,
        versions=(finished.version,),
        spec=finished.spec,
        latency_s=finished.latency_s,
        draft_steps=finished.draft_steps,
    )


def _outcomes(futures: Sequence[Future]) -> tuple[list[bool], RunError | None]:
    """Waits for all; which succeeded, and the first error."""
    succeeded: list[bool] = []
    first: RunError | None = None
    for future in futures:
        try:
            future.result()
        except RunError as error:
            first = first or error
            succeeded.append(False)
        else:
            succeeded.append(True)
    return succeeded, first
