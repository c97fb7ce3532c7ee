"""The learner as the loop sees it: one call spread over the ranks, one result merged."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from specrl.config.algorithm import AlgorithmConfig
from specrl.config.learner import LearnerConfig
from specrl.errors import ActorDied, RunError
from specrl.learner.layout import world_size
from specrl.learner.packing import TokenSample
from specrl.protocols import Actor, Future
from specrl.types import Float32, Metrics, Rollout, TokenLogprobs, TrainSample, WeightSnapshot

GRACE_S = 10.0  # after one rank fails, how long the others may take to say that one died


class MegatronLearner:
    """`protocols.Learner` and `DraftLearner` over `LearnerRank` actors, given in rank order.

    Neighbouring ranks form a tensor-parallel group and get the same samples; the groups
    (data-parallel) get shares of about equal token counts. Raises `ActorDied` when a rank is gone.
    """

    def __init__(
        self, actors: Sequence[Actor], learner: LearnerConfig, algorithm: AlgorithmConfig
    ) -> None:
        """Brings the ranks together and waits until their weights are loaded."""
        assert len(actors) == world_size(learner), (len(actors), learner)
        self._actors = list(actors)
        self._copies = learner.data_parallel
        self._ways = learner.tensor_parallel
        self._minibatches = algorithm.minibatches
        self._update_broke_off = False
        host, port = self._actors[0].submit("listen").result()
        self._on_all("connect", host, port)

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[TokenLogprobs]:
        """See `protocols.Learner`."""
        return self._by_rollout("logprobs", rollouts)

    def step(self, samples: Sequence[TrainSample]) -> Metrics:
        """See `protocols.Learner`; an optimizer step for each of `algorithm.minibatches` parts."""
        shares: list[list[list[TrainSample]]] = [[] for _ in range(self._copies)]
        for part in _parts(samples, self._minibatches):
            split = balanced_shares([_tokens(sample) for sample in part], self._copies)
            for share, indices in zip(shares, split, strict=True):
                share.append([part[i] for i in indices])
        self._update_broke_off = True
        metrics: Metrics = self._on_copies("step", shares)[0]
        self._update_broke_off = False
        return metrics

    def step_draft(self) -> Metrics:
        """See `protocols.Learner`."""
        # A step of the run is policy and draft: without the draft's part it is not worth saving.
        self._update_broke_off = True
        metrics: Metrics = self._on_all("step_draft")[0]
        self._update_broke_off = False
        return metrics

    def capture(self, rollouts: Sequence[Rollout]) -> int:
        """See `protocols.DraftLearner`."""
        samples, shares = self._shares(rollouts)
        captured = self._on_copies("capture", [[samples[i] for i in own] for own in shares])
        return int(max(captured))

    def fit_draft(
        self, learning_rate: float, part: int = 0, parts: int = 1, loss: str | None = None
    ) -> Metrics:
        """See `protocols.DraftLearner`."""
        metrics: Metrics = self._on_all("fit_draft", learning_rate, part, parts, loss)[0]
        return metrics

    def forget_captured(self) -> None:
        """See `protocols.DraftLearner`."""
        self._on_all("forget_captured")

    def replay_draft(self, rollouts: Sequence[Rollout], k: int) -> list[Float32]:
        """See `protocols.DraftLearner`."""
        return self._by_rollout("replay_draft", rollouts, k)

    def save_draft(self, folder: Path) -> None:
        """See `protocols.DraftLearner`."""
        self._on_all("save_draft", folder)

    def load_draft(self, folder: Path) -> None:
        """See `protocols.DraftLearner`."""
        self._on_all("load_draft", folder)

    def export_draft(self, folder: Path) -> None:
        """See `protocols.DraftLearner`."""
        self._on_all("export_draft", folder)

    def export_weights(self, folder: Path, version: int) -> WeightSnapshot:
        """See `protocols.Learner`."""
        snapshot: WeightSnapshot = self._on_all("export_weights", folder, version)[0]
        return snapshot

    def save(self, folder: Path) -> None:
        """See `protocols.Learner`. Raises `RunError` after an update that broke off midway."""
        if self._update_broke_off:
            raise RunError("the last update broke off midway; its weights are not worth saving")
        self._on_all("save", folder)

    def load(self, folder: Path) -> None:
        """See `protocols.Learner`."""
        self._on_all("load", folder)

    def _shares(self, rollouts: Sequence[Rollout]) -> tuple[list[TokenSample], list[list[int]]]:
        """All samples, and which of them each copy gets."""
        samples = [TokenSample(r.prompt.token_ids, r.token_ids) for r in rollouts]
        return samples, balanced_shares([_tokens(sample) for sample in samples], self._copies)

    def _by_rollout(self, method: str, rollouts: Sequence[Rollout], *args: Any) -> list[Any]:
        """What `method` gives for each rollout, in the order of `rollouts`."""
        samples, shares = self._shares(rollouts)
        results = self._on_copies(method, [[samples[i] for i in own] for own in shares], *args)
        merged: list[Any] = [None] * len(rollouts)
        for share, result in zip(shares, results, strict=True):
            for index, item in zip(share, result, strict=True):
                merged[index] = item
        return merged

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        return _results([actor.submit(method, *args) for actor in self._actors])

    def _on_copies(self, method: str, shares: Sequence[Any], *args: Any) -> list[Any]:
        """One result per copy of the weights; its tensor-parallel ranks all get the same share."""
        futures = [
            actor.submit(method, shares[rank // self._ways], *args)
            for rank, actor in enumerate(self._actors)
        ]
        return _results(futures)[:: self._ways]


def balanced_shares(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Indices of `sizes` in `count` lists of about equal sums, each in ascending order."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        lightest = loads.index(min(loads))
        shares[lightest].append(index)
        loads[lightest] += sizes[index]
    return [sorted(share) for share in shares]


def _tokens(sample: TokenSample | TrainSample) -> int:
    return len(sample.prompt_ids) + len(sample.response_ids)


def _parts(samples: Sequence[TrainSample], count: int) -> list[Sequence[TrainSample]]:
    """`count` consecutive parts of about equal length, none empty."""
    count = min(count, len(samples))
    edges = [len(samples) * i // count for i in range(count + 1)]
    return [samples[start:stop] for start, stop in pairwise(edges)]


def _results(futures: Sequence[Future]) -> list[Any]:
    """All results in order. A rank's death wins over the errors it causes in other ranks."""
    outcomes: queue.Queue[tuple[int, Any, Exception | None]] = queue.Queue()
    for index, future in enumerate(futures):
        threading.Thread(target=_wait(index, future, outcomes), daemon=True).start()
    results: list[Any] = [None] * len(futures)
    for _ in futures:
        index, result, error = outcomes.get()
        if error is not None:
            raise _cause(error, outcomes, len(futures))
        results[index] = result
    return results


def _wait(
    index: int, future: Future, outcomes: "queue.Queue[tuple[int, Any, Exception | None]]"
) -> Callable[[], None]:
    def wait() -> None:
        try:
            outcomes.put((index, future.result(), None))
        except Exception as error:
            outcomes.put((index, None, error))

    return wait


def _cause(
    error: Exception, outcomes: "queue.Queue[tuple[int, Any, Exception | None]]", ranks: int
) -> Exception:
    with contextlib.suppress(queue.Empty):
        for _ in range(ranks - 1):
            if isinstance(error, ActorDied):
                break
            _, _, other = outcomes.get(timeout=GRACE_S)
            error = other if isinstance(other, ActorDied) else error
    return error
