"""The policy's responses that a draft is fitted to, kept where a killed build goes on."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specrl.errors import UserError
from specrl.protocols import OnProgress, RolloutEngine
from specrl.types import Prompt, Rollout, Sampling

MOST_CHUNKS = 16  # generate calls of a build: each one ends with its longest response alone
FEWEST_RESPONSES = 128  # of a chunk, as far as there are so many


@dataclass(frozen=True)
class Watch:
    """Whom a build tells how far it is, and who may ask it to stop."""

    note: Callable[[str], None]
    progress: Callable[[str], OnProgress]
    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic

    def pause(self) -> None:
        """Raises KeyboardInterrupt where a stop was asked for: what is done has been kept."""
        if self.stop():
            raise KeyboardInterrupt


class Responses:
    """`samples` responses to each prompt, in that order, kept in a JSON-lines file.

    A line per response; a chunk counts once the line with its seconds follows it. What else is in
    the file (torn by a kill, or of other prompts) is cut off. Log-probs are not kept (NaN).
    """

    def __init__(self, path: Path, prompts: Sequence[Prompt], samples: int) -> None:
        if not prompts:
            raise UserError("a draft cannot be fitted to no prompts at all; give at least one")
        self._path = path
        self._prompts = list(prompts)
        self._samples = samples
        self._bytes = 0
        self.seconds = 0.0
        self.rollouts: list[Rollout] = []
        self._read()

    @property
    def missing(self) -> int:
        """Responses that are not there yet."""
        return len(self._prompts) * self._samples - len(self.rollouts)

    @property
    def tokens(self) -> int:
        """Response tokens."""
        return response_tokens(self.rollouts)

    def complete(
        self, engine: RolloutEngine, sampling: Sampling, seed: int, watch: Watch, label: str
    ) -> None:
        """Generates what is missing, chunk by chunk; each chunk has a sampler seed of its own."""
        per_chunk = chunk_prompts(len(self._prompts), self._samples)
        while self.missing:
            watch.pause()
            first = len(self.rollouts) // self._samples
            prompts = self._prompts[first : first + per_chunk]
            entropy = np.random.SeedSequence([seed, first, len(self._prompts)])
            seeded = replace(sampling, seed=int(entropy.generate_state(1)[0]))
            began = watch.clock()
            name = f"{label} {first + 1}-{first + len(prompts)} of {len(self._prompts)} prompts"
            new = engine.generate(prompts, self._samples, seeded, watch.progress(name))
            self._append(new, watch.clock() - began)

    def _append(self, rollouts: Sequence[Rollout], seconds: float) -> None:
        lines = [
            json.dumps(
                {
                    "prompt": rollout.prompt.id,
                    "sample": rollout.sample,
                    "token_ids": rollout.token_ids,
                    "finish_reason": rollout.finish_reason,
                    "text": rollout.text,
                }
            )
            for rollout in rollouts
        ]
        lines.append(json.dumps({"seconds": seconds}))
        data = "".join(f"{line}\n" for line in lines).encode()
        with self._path.open("ab") as file:
            file.truncate(self._bytes)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._bytes += len(data)
        self.seconds += seconds
        self.rollouts += rollouts

    def _read(self) -> None:
        if not self._path.exists():
            return
        chunk: list[Rollout] = []
        read = 0
        with self._path.open("rb") as file:
            for line in file:
                row = _json_object(line)
                read += len(line)
                if "seconds" in row:
                    self.rollouts += chunk
                    self.seconds += float(row["seconds"])
                    self._bytes, chunk = read, []
                    continue
                rollout = self._rollout(len(self.rollouts) + len(chunk), row)
                if rollout is None:
                    return
                chunk.append(rollout)

    def _rollout(self, index: int, row: Mapping[str, Any]) -> Rollout | None:
        group, sample = divmod(index, self._samples)
        if group >= len(self._prompts):
            return None
        prompt = self._prompts[group]
        if (row.get("prompt"), row.get("sample")) != (prompt.id, sample):
            return None
        if not row.keys() >= {"token_ids", "text", "finish_reason"}:
            return None
        return Rollout(
            prompt=prompt,
            group=group,
            sample=sample,
            token_ids=tuple(row["token_ids"]),
            rollout_logprobs=np.full(len(row["token_ids"]), np.nan, np.float32),
            text=row["text"],
            finish_reason=row["finish_reason"],
            versions=(0,),
            spec=None,
            latency_s=math.nan,
        )


def chunk_prompts(num_prompts: int, samples: int) -> int:
    """Prompts of one generate call, the same whenever a build goes on."""
    by_count = math.ceil(num_prompts / MOST_CHUNKS)
    return max(by_count, math.ceil(FEWEST_RESPONSES / samples))


def in_shards(rollouts: Sequence[Rollout], tokens: int) -> list[list[Rollout]]:
    """Consecutive shards of at most `tokens` response tokens; a longer response is one alone."""
    shards: list[list[Rollout]] = []
    room = 0
    for rollout in rollouts:
        if not shards or len(rollout.token_ids) > room:
            shards.append([])
            room = tokens
        shards[-1].append(rollout)
        room -= len(rollout.token_ids)
    return shards


def response_tokens(rollouts: Sequence[Rollout]) -> int:
    """How many tokens the responses have together."""
    return sum(len(rollout.token_ids) for rollout in rollouts)


def _json_object(line: bytes) -> Mapping[str, Any]:
    """The object on a whole line, else an empty one."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        row = None
    return row if isinstance(row, dict) else {}
