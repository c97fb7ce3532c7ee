"""Generation speedup of a learned draft by concurrency and draft length, with c(k).

    python benchmarks/draft_speed.py --rounds 3 experiment=rl_think_cpu init=dapo

The other arguments are specrl's own overrides. The draft is built first if its init is not cached.
Arms take turns on the same held-out prompts: `ar` is an engine without a draft, `k=n` one engine
with the draft at a fixed length, `auto` that engine under `drafter.k=auto`; `--modes greedy block`
adds engines that draft the first of `--lengths` so. Needs a quiet machine.
"""

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from result import machine, publish
from safetensors.torch import load_file

from specrl.algo.acceptance import acceptance_length, total
from specrl.build import build_drafter, draft_outlook, first_draft, prepared
from specrl.build_processes import build_cluster, build_sampling, spawn_engines
from specrl.checkpoint import RunState
from specrl.config.compose import load
from specrl.config.drafter import NoDrafterConfig
from specrl.config.train import TrainConfig
from specrl.draft_record import read_record
from specrl.drafter import NoDrafter
from specrl.learner.folder_snapshot import folder_snapshot
from specrl.learner.snapshot import write_draft
from specrl.protocols import RolloutEngine
from specrl.rollout.auto_length import AutoLengthEngine
from specrl.rollout.step_costs import engine_step_costs
from specrl.rollout.vllm_engine import VllmEngine
from specrl.telemetry.console import ConsoleSink
from specrl.types import Prompt, Rollout, Sampling, WeightSnapshot

LENGTHS = (1, 3, 5, 7)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"sampling": "greedy"},
    "block": {"verification": "block"},
}
AUTOREGRESSIVE = "ar"


@dataclass
class Cell:
    """One arm at one concurrency, an entry per round."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)

    def add(self, rollouts: Sequence[Rollout], steps: int, seconds: float) -> None:
        self.seconds.append(seconds)
        self.tokens.append(sum(len(rollout.token_ids) for rollout in rollouts))
        self.steps.append(steps)
        self.rollouts += rollouts

    @property
    def tokens_per_s(self) -> list[float]:
        """Of each round."""
        return [t / s for t, s in zip(self.tokens, self.seconds, strict=True)]

    @property
    def step_s(self) -> float:
        """Seconds of an engine step while the longest response runs; median over rounds."""
        return statistics.median(s / n for s, n in zip(self.seconds, self.steps, strict=True))

    @property
    def alpha(self) -> float | None:
        counts = total(r.spec for r in self.rollouts if r.spec is not None)
        return acceptance_length(counts)


Arms = dict[str, tuple[RolloutEngine, int | None]]


def answer(
    engine: RolloutEngine, prompts: Sequence[Prompt], sampling: Sampling, concurrency: int
) -> tuple[list[Rollout], int, float]:
    """All prompts, `concurrency` at a time; rollouts, engine steps and seconds."""
    rollouts: list[Rollout] = []
    steps = 0
    began = time.perf_counter()
    for start in range(0, len(prompts), concurrency):
        batch = engine.generate(prompts[start : start + concurrency], 1, sampling)
        steps += max(len(rollout.draft_steps) or len(rollout.token_ids) for rollout in batch)
        rollouts += batch
    return rollouts, steps, time.perf_counter() - began


def run_rounds(
    arms: Arms, prompts: Sequence[Prompt], sampling: Sampling, options: argparse.Namespace
) -> dict[int, dict[str, Cell]]:
    """Arms in a new random order for each round and concurrency; an uncounted round first."""
    sizes, rounds = options.concurrency, options.rounds
    cells = {size: {name: Cell() for name in arms} for size in sizes}
    order = random.Random(0)
    for number, size in itertools.product(range(rounds + 1), sizes):
        count = max(options.responses, size)
        chosen = [prompts[(number * count + i) % len(prompts)] for i in range(count)]
        seeded = replace(sampling, seed=1000 * number + size)
        for name in order.sample(list(arms), len(arms)):
            engine, k = arms[name]
            if k is not None:
                engine.set_draft_lengths(((1, k),))
            measured = answer(engine, chosen, seeded, size)
            if number:
                cells[size][name].add(*measured)
        sys.stderr.write(f"round {number} of {rounds}, {size} concurrent\n")
    return cells


def report(cells: dict[int, dict[str, Cell]]) -> list[dict[str, Any]]:
    rows = []
    for size, arms in cells.items():
        plain = arms[AUTOREGRESSIVE]
        for name, cell in arms.items():
            pairs = zip(cell.tokens_per_s, plain.tokens_per_s, strict=True)
            gains = [drafting / autoregressive for drafting, autoregressive in pairs]
            rows.append(
                {
                    "concurrency": size,
                    "arm": name,
                    "tokens_per_s": round(statistics.median(cell.tokens_per_s), 1),
                    "speedup": round(statistics.median(gains), 3),
                    "speedup_of_each_round": [round(gain, 3) for gain in gains],
                    "alpha": None if cell.alpha is None else round(cell.alpha, 3),
                    "step_ms": round(1000 * cell.step_s, 1),
                    "c": round(cell.step_s / plain.step_s, 2),
                    "tokens": sum(cell.tokens),
                }
            )
    return rows


def measure(config: TrainConfig, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    console = ConsoleSink(work, total_steps=0, ui=None)
    with ExitStack() as stack:
        model, task = prepared(config, console, stack)
        draft = first_draft(config, model, task, None, console)
        assert draft is not None
        prompts = task.validation(10**6)
    sampling = build_sampling(config.rollout)
    policy = folder_snapshot(model, config.rollout.dtype, work, version=0)
    with closing(build_cluster(config, work, learner=False)) as cluster:
        length = config.model.max_model_len
        plain = spawn_engines(config, model, NoDrafter(NoDrafterConfig()), cluster)
        ar = ready(VllmEngine([r.actor for r in plain], length), policy)
        pair = replace(policy, draft=draft_weights(draft, config.rollout.dtype, work))
        drafting = spawn_engines(config, model, build_drafter(config, model, draft), cluster)
        eagle = ready(VllmEngine([r.actor for r in drafting], length), pair)
        costs = engine_step_costs(
            work,
            drafting[0].settings,
            drafting[0].placement,
            [r.actor for r in drafting],
            max(options.concurrency),
            config.rollout.top_p,
            console.note,
        )
        promised = draft_outlook(config, read_record(draft), [], RunState(), console.note).promised
        auto = AutoLengthEngine(eagle, costs, max(LENGTHS), console.note, promised)
        arms: Arms = {AUTOREGRESSIVE: (ar, None), "auto": (auto, None)}
        arms |= {f"k={k}": (eagle, k) for k in options.lengths}
        for mode in options.modes:
            other = replace(config, drafter=replace(config.drafter, **MODES[mode]))
            spawned = spawn_engines(other, model, build_drafter(other, model, draft), cluster)
            engine = ready(VllmEngine([r.actor for r in spawned], length), pair)
            arms[f"{mode} k={options.lengths[0]}"] = (engine, options.lengths[0])
        cells = run_rounds(arms, prompts, sampling, options)
    return {"cells": report(cells), "auto_chose": dict(auto.metrics()), "draft": draft.name}


def draft_weights(draft: Path, dtype: str, work: Path) -> Any:
    import torch

    tensors = load_file(draft / "model.safetensors")
    tensors.pop("t2d", None)
    return write_draft(work, 0, getattr(torch, dtype), tensors)


def ready(engine: VllmEngine, snapshot: WeightSnapshot) -> VllmEngine:
    engine.wait_ready()
    engine.load_weights(snapshot)
    return engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--responses", type=int, default=16, help="per arm and round, at least")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--modes", nargs="*", default=[], choices=list(MODES))
    parser.add_argument("--name", default="draft_speed", help="of the file in results/")
    options, overrides = parser.parse_known_args()
    config = load(["drafter=eagle3", *overrides, "drafter.k=7"])
    before = machine()
    with tempfile.TemporaryDirectory() as work:
        measured = measure(config, options, Path(work))
    result = {
        "what": "generation with a learned draft against autoregressive decoding, interleaved",
        "overrides": overrides,
        "rounds": options.rounds,
        "responses": options.responses,
        **measured,
    }
    publish(result, before, "specrl", options.name)


if __name__ == "__main__":
    main()
