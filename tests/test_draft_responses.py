"""Responses that are kept: a build goes on after whole chunks, whatever a kill left."""

from pathlib import Path

import pytest

from specrl.draft_responses import (
    FEWEST_RESPONSES,
    MOST_CHUNKS,
    Responses,
    Watch,
    chunk_prompts,
    in_shards,
)
from specrl.errors import EngineError, UserError
from specrl.fakes import FakeEngine, FakeTask, Faults
from specrl.types import Sampling

SAMPLES = 64  # two prompts are a chunk
SAMPLING = Sampling(max_tokens=6)
WATCH = Watch(note=lambda _: None, progress=lambda _: lambda _: None)


def engine(faults: Faults | None = None) -> FakeEngine:
    return FakeEngine(version=0, faults=faults or Faults())


def responses(folder: Path, num_prompts: int = 6) -> Responses:
    return Responses(folder / "responses.jsonl", FakeTask().train(0, num_prompts), SAMPLES)


def drawn(part: Responses) -> list[tuple[str, int, tuple[int, ...], str]]:
    return [(r.prompt.id, r.sample, r.token_ids, r.text) for r in part.rollouts]


def test_what_was_generated_is_read_back(tmp_path: Path) -> None:
    first = responses(tmp_path)
    first.complete(engine(), SAMPLING, seed=3, watch=WATCH, label="responses")
    again = responses(tmp_path)
    assert again.missing == 0
    assert drawn(again) == drawn(first)
    assert (again.tokens, again.seconds) == (first.tokens, pytest.approx(first.seconds))


@pytest.mark.parametrize("done", [0, 1, 2])
def test_after_a_kill_finished_chunks_are_not_drawn_again(tmp_path: Path, done: int) -> None:
    reference = Responses(tmp_path / "whole.jsonl", FakeTask().train(0, 6), SAMPLES)
    reference.complete(engine(), SAMPLING, seed=3, watch=WATCH, label="responses")
    killed = engine(Faults({("generate", done): EngineError("killed")}))
    part = responses(tmp_path)
    with pytest.raises(EngineError):
        part.complete(killed, SAMPLING, seed=3, watch=WATCH, label="responses")
    fresh = engine()
    rest = responses(tmp_path)
    assert len(rest.rollouts) == done * 2 * SAMPLES
    rest.complete(fresh, SAMPLING, seed=3, watch=WATCH, label="responses")
    assert fresh.events.count("generate with version 0") == 3 - done
    assert drawn(rest) == drawn(reference)


@pytest.mark.parametrize(
    "tail", [b'{"prompt": "fake/train/4", "sam', b"not json\n", b'[1]\n{"seconds": 1}\n', b"\xff\n"]
)
def test_a_torn_end_is_cut_off_and_drawn_again(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "responses.jsonl"
    part = responses(tmp_path)
    part.complete(engine(), SAMPLING, seed=3, watch=WATCH, label="responses")
    lines = path.read_bytes().splitlines(keepends=True)
    chunk = 2 * SAMPLES + 1
    path.write_bytes(b"".join(lines[: 2 * chunk + 5]) + tail)
    rest = responses(tmp_path)
    assert rest.missing == 2 * SAMPLES
    rest.complete(engine(), SAMPLING, seed=3, watch=WATCH, label="responses")
    assert drawn(responses(tmp_path)) == drawn(part)


def test_responses_to_other_prompts_are_not_taken_for_ours(tmp_path: Path) -> None:
    responses(tmp_path).complete(engine(), SAMPLING, seed=3, watch=WATCH, label="responses")
    others = Responses(tmp_path / "responses.jsonl", FakeTask().train(1, 6), SAMPLES)
    assert others.missing == 6 * SAMPLES


def test_a_stop_between_chunks_keeps_what_is_done(tmp_path: Path) -> None:
    one = engine()
    stopping = Watch(
        note=lambda _: None, progress=lambda _: lambda _: None, stop=lambda: len(one.events) > 0
    )
    with pytest.raises(KeyboardInterrupt):
        responses(tmp_path).complete(one, SAMPLING, seed=3, watch=stopping, label="responses")
    assert responses(tmp_path).missing == 4 * SAMPLES


def test_no_prompts_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no prompts"):
        Responses(tmp_path / "r.jsonl", [], 2)


def test_chunks_are_neither_many_nor_small() -> None:
    assert chunk_prompts(384, 2) * 2 == FEWEST_RESPONSES
    assert chunk_prompts(16_000, 2) == 16_000 // MOST_CHUNKS
    assert chunk_prompts(10, 1000) == 1


def test_shards_hold_every_response_in_order_within_their_size(tmp_path: Path) -> None:
    part = responses(tmp_path)
    part.complete(engine(), SAMPLING, seed=3, watch=WATCH, label="responses")
    shards = in_shards(part.rollouts, 50)
    assert [r for shard in shards for r in shard] == part.rollouts
    assert max(sum(len(r.token_ids) for r in shard) for shard in shards) <= 50
    assert len(in_shards(part.rollouts, 1)) == len(part.rollouts)
