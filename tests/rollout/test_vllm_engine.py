"""The driver's half of the engine, on actors that answer from memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrl.errors import ActorDied, EngineError, PublishError, RunError
from specrl.rollout.records import Advance, FinishedSample, SampleRequest
from specrl.rollout.vllm_engine import VllmEngine
from specrl.types import GenerationProgress, Prompt, Sampling, WeightSnapshot

SAMPLING = Sampling(max_tokens=4)


class Now:
    """A future that is already there."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class FakeWorker:
    """Finishes a request at every `advance`; `fail[method]` are errors to raise, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.live: int | None = None
        self.queue: list[SampleRequest] = []
        self.served: list[int] = []
        self.fail: dict[str, list[Exception | None]] = {}
        self.calls: list[str] = []
        self.schedule: Sequence[tuple[int, int]] = ()

    def submit(self, method: str, *args: Any, **_: Any) -> Now:
        self.calls.append(method)
        planned = self.fail.get(method)
        if planned and (error := planned.pop(0)) is not None:
            return Now(error)
        return Now(getattr(self, method)(*args))

    def kill(self) -> None: ...

    def version(self) -> int | None:
        return self.live

    def stage_weights(self, snapshot: WeightSnapshot) -> None: ...

    def load_weights(self, snapshot: WeightSnapshot) -> int:
        self.live = snapshot.version
        return snapshot.version

    def forget_version(self) -> None:
        self.live = None

    def add(self, requests: Sequence[SampleRequest], _: Sampling) -> None:
        self.queue += requests

    def advance(self) -> Advance:
        if not self.queue:
            return Advance((), 0, 0, 0, 0)
        request = self.queue.pop()
        self.served.append(request.key)
        logprobs = np.array([-1.0, -2.0], dtype=np.float32)
        assert self.live is not None
        done = FinishedSample(
            request.key, (request.key, 5), logprobs, "t", "stop", self.live, None, 1.0
        )
        return Advance((done,), len(self.queue), tokens=2, num_drafts=2, num_accepted_tokens=1)

    def set_draft_lengths(self, schedule: Sequence[tuple[int, int]]) -> None:
        self.schedule = schedule

    def abort(self) -> None:
        self.queue.clear()

    def close(self) -> None: ...


def snapshot(version: int) -> WeightSnapshot:
    return WeightSnapshot(version, Path(f"{version}.safetensors"), {})


def prompts(number: int) -> list[Prompt]:
    return [Prompt(f"p/{i}", "", (1, 2, 3), {}) for i in range(number)]


def engine_on(workers: Sequence[FakeWorker], version: int | None = 1) -> VllmEngine:
    engine = VllmEngine(workers, max_model_len=8)
    if version is not None:
        engine.load_weights(snapshot(version))
    return engine


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
def test_rollouts_come_in_order_of_prompt_and_sample(replicas: int) -> None:
    workers = [FakeWorker(f"engine-{i}") for i in range(replicas)]
    asked = prompts(2)
    rollouts = engine_on(workers).generate(asked, 3, SAMPLING)
    assert [(r.group, r.sample) for r in rollouts] == [(g, s) for g in (0, 1) for s in (0, 1, 2)]
    assert [r.token_ids[0] for r in rollouts] == list(range(6))
    assert [r.prompt for r in rollouts] == [asked[0]] * 3 + [asked[1]] * 3
    assert {r.versions for r in rollouts} == {(1,)}
    served = [len(worker.served) for worker in workers]
    assert sum(served) == 6
    assert max(served) - min(served) <= 1


def test_progress_sums_over_replicas_and_counts_the_bonus_token() -> None:
    seen: list[GenerationProgress] = []
    engine_on([FakeWorker("a"), FakeWorker("b")]).generate(prompts(2), 2, SAMPLING, seen.append)
    last = seen[-1]
    assert (last.finished, last.total, last.tokens) == (4, 4, 8)
    assert last.acceptance_length == pytest.approx(1.5)
    assert [p.finished for p in seen] == sorted(p.finished for p in seen)


def test_nothing_is_generated_before_the_first_publish() -> None:
    worker = FakeWorker("a")
    with pytest.raises(EngineError, match="no weights are live"):
        engine_on([worker], version=None).generate(prompts(1), 2, SAMPLING)
    assert "add" not in worker.calls


def test_replicas_of_different_versions_generate_nothing() -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers)
    workers[1].live = None
    with pytest.raises(EngineError, match=r"do not serve version 1 \(a: 1, b: None\)"):
        engine.generate(prompts(1), 2, SAMPLING)
    assert "add" not in workers[0].calls


def test_a_prompt_without_room_reaches_no_replica() -> None:
    worker = FakeWorker("a")
    with pytest.raises(EngineError, match="long has 8 tokens"):
        engine_on([worker]).generate([Prompt("long", "", (1,) * 8, {})], 2, SAMPLING)
    assert "add" not in worker.calls


@pytest.mark.parametrize("method", ["add", "advance"])
def test_a_failing_replica_ends_the_call_and_empties_the_others(method: str) -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers)
    workers[1].fail[method] = [EngineError("out of cache")]
    with pytest.raises(EngineError, match="out of cache"):
        engine.generate(prompts(4), 2, SAMPLING)
    assert workers[0].queue == workers[1].queue == []
    assert len(engine.generate(prompts(2), 2, SAMPLING)) == 4


def test_an_interrupted_call_drops_its_requests_and_leaves_the_engine_usable() -> None:
    worker = FakeWorker("a")
    engine = engine_on([worker])

    def interrupt(_: GenerationProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompts(4), 2, SAMPLING, interrupt)
    assert worker.queue == []
    assert len(engine.generate(prompts(1), 2, SAMPLING)) == 2


def test_a_dead_replica_does_not_hide_behind_its_failing_abort() -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers)
    workers[1].fail = {"advance": [ActorDied("b is gone")], "abort": [ActorDied("b is gone")]}
    with pytest.raises(ActorDied, match="b is gone"):
        engine.generate(prompts(4), 2, SAMPLING)
    assert workers[0].queue == []


def test_a_snapshot_that_one_replica_refuses_reaches_no_live_model() -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers)
    workers[1].fail["stage_weights"] = [PublishError("x has a wrong checksum")]
    before = [worker.calls.count("load_weights") for worker in workers]
    with pytest.raises(PublishError, match="version 2 was refused: x has a wrong checksum"):
        engine.load_weights(snapshot(2))
    assert [worker.calls.count("load_weights") for worker in workers] == before
    assert (engine.version, workers[0].live, workers[1].live) == (1, 1, 1)


@pytest.mark.parametrize("error", [PublishError("half a load"), ActorDied("b is gone")])
def test_a_load_that_fails_on_one_replica_puts_the_others_back(error: RunError) -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers)
    workers[1].fail["load_weights"] = [error]
    with pytest.raises(PublishError, match=f"version 2 did not load: {error}"):
        engine.load_weights(snapshot(2))
    assert (engine.version, workers[0].live, workers[1].live) == (1, 1, 1)


def test_a_first_load_that_fails_on_one_replica_leaves_none_live() -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers, version=None)
    workers[1].fail["load_weights"] = [PublishError("half a load")]
    with pytest.raises(PublishError):
        engine.load_weights(snapshot(1))
    assert (engine.version, workers[0].live) == (None, None)


def test_draft_lengths_reach_every_replica_and_a_refusal_comes_back() -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    engine = engine_on(workers)
    engine.set_draft_lengths([(4, 3), (5, 0)])
    assert [worker.schedule for worker in workers] == [((4, 3), (5, 0))] * 2
    workers[1].fail["set_draft_lengths"] = [EngineError("draft length 9 is not allowed")]
    with pytest.raises(EngineError, match="draft length 9"):
        engine.set_draft_lengths([(1, 9)])


def test_waiting_for_readiness_raises_what_kept_a_replica_from_starting() -> None:
    worker = FakeWorker("a")
    worker.fail["version"] = [EngineError("vLLM does not start")]
    with pytest.raises(EngineError, match="does not start"):
        VllmEngine([worker], max_model_len=8).wait_ready()


def test_closing_survives_a_dead_replica() -> None:
    workers = [FakeWorker("a"), FakeWorker("b")]
    workers[0].fail["close"] = [ActorDied("a is gone")]
    engine_on(workers).close()
    assert workers[1].calls[-1] == "close"


def test_a_closed_engine_closes_again_and_does_nothing_else() -> None:
    worker = FakeWorker("a")
    engine = engine_on([worker])
    engine.close()
    engine.close()
    assert worker.calls.count("close") == 1
    with pytest.raises(EngineError, match="no weights are live"):
        engine.generate(prompts(1), 2, SAMPLING)
    with pytest.raises(PublishError, match="engine closed"):
        engine.load_weights(snapshot(2))
