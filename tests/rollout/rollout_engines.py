"""Real engines on toy models, one process each."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rollout_process import ProcessActor
from rollout_toys import (
    MAX_MODEL_LEN,
    Tensors,
    draft_weights,
    save_draft,
    save_tokenizer,
    snapshot,
    toy,
    toy_draft,
)

from specrl.rollout.settings import EngineSettings
from specrl.rollout.vllm_engine import VllmEngine
from specrl.types import WeightSnapshot

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}
PROBABILISTIC_DRAFT = {
    "method": "draft_model",
    "num_speculative_tokens": 3,
    "draft_sample_method": "probabilistic",
}
GREEDY_DRAFT = PROBABILISTIC_DRAFT | {"draft_sample_method": "greedy"}
EAGLE3 = PROBABILISTIC_DRAFT | {"method": "eagle3"}
BLOCK = {"rejection_sample_method": "block"}


@dataclass
class ToyEngine:
    """A live engine serving `model` as version 1 until a test publishes something else."""

    engine: VllmEngine
    actor: ProcessActor
    model: Any
    folder: Path
    drafts: bool
    draft: Tensors | None = None

    def publish(self, model: Any, version: int, folder: Path, draft: Tensors | None = None) -> None:
        self.engine.load_weights(self.snapshot(model, version, folder, draft))

    def snapshot(
        self, model: Any, version: int, folder: Path, draft: Tensors | None = None
    ) -> WeightSnapshot:
        """Of a learned draft's engine with `draft`, or the draft it was started with."""
        new = snapshot(model, folder, version)
        draft = self.draft if draft is None else draft
        return new if draft is None else replace(new, draft=draft_weights(draft, folder))


def start_toy(
    folder: Path,
    speculation: dict[str, Any] | None,
    tied: bool = False,
    target: str = "specrl.rollout.worker:EngineWorker",
    draft_config: dict[str, Any] | None = None,
    policy: Any = None,
    draft: Tensors | None = None,
    dtype: str = "float32",
) -> ToyEngine:
    """EAGLE-3 starts on `draft`, or one of 5 tokens; `draft_config` overrides."""
    model = toy(seed=0, tied=tied) if policy is None else policy
    model = model.to(getattr(torch, dtype))
    snapshot(model, folder / "policy", version=1)
    if tied:
        save_tokenizer(folder / "policy")
    if speculation is not None and speculation["method"] == "draft_model":
        toy(seed=1, hidden=32, layers=1, heads=1).save_pretrained(folder / "draft")
        speculation = speculation | {"model": str(folder / "draft")}
    if speculation is not None and speculation["method"] == "eagle3":
        draft = toy_draft(1, 5, getattr(torch, dtype)) if draft is None else draft
        save_draft(draft, folder / "draft", draft_config or {})
        speculation = speculation | {"model": str(folder / "draft")}
    settings = EngineSettings(
        model=str(folder / "policy"),
        max_model_len=MAX_MODEL_LEN,
        dtype=dtype,
        speculative_config=speculation,
        engine_args={
            "skip_tokenizer_init": not tied,
            "max_num_seqs": 1024,
            "max_num_batched_tokens": 8192,
            "block_size": 32,
            "kv_cache_memory_bytes": 2**28,
        },
    )
    actor = ProcessActor("engine-0", target, (settings,))
    engine = VllmEngine([actor], MAX_MODEL_LEN)
    drafts = speculation is not None
    started = ToyEngine(engine, actor, model, folder, drafts, draft)
    try:
        engine.wait_ready()
        started.publish(model, 1, folder / "policy")
    except BaseException:
        actor.kill()
        raise
    return started
