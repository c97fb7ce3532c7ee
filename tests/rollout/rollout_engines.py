"""Real engines on toy models, one process each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_process import ProcessActor
from rollout_toys import MAX_MODEL_LEN, save_tokenizer, snapshot, toy

from specrl.rollout.environment import engine_environment
from specrl.rollout.settings import EngineSettings
from specrl.rollout.vllm_engine import VllmEngine

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


@dataclass
class ToyEngine:
    """A live engine serving `model` as version 1 until a test publishes something else."""

    engine: VllmEngine
    actor: ProcessActor
    model: Any
    folder: Path
    drafts: bool

    def publish(self, model: Any, version: int, folder: Path) -> None:
        self.engine.load_weights(snapshot(model, folder, version))


def start_toy(
    folder: Path,
    speculation: dict[str, Any] | None,
    tied: bool = False,
    target: str = "specrl.rollout.worker:EngineWorker",
) -> ToyEngine:
    model = toy(seed=0, tied=tied)
    live = snapshot(model, folder / "policy", version=1)
    if tied:
        save_tokenizer(folder / "policy")
    if speculation is not None and speculation["method"] == "draft_model":
        toy(seed=1, hidden=32, layers=1, heads=1).save_pretrained(folder / "draft")
        speculation = speculation | {"model": str(folder / "draft")}
    settings = EngineSettings(
        model=str(folder / "policy"),
        max_model_len=MAX_MODEL_LEN,
        dtype="float32",
        speculative_config=speculation,
        engine_args={
            "skip_tokenizer_init": not tied,
            "max_num_seqs": 1024,
            "max_num_batched_tokens": 8192,
            "block_size": 32,
            "kv_cache_memory_bytes": 2**28,
        },
    )
    env = engine_environment(cores=[]) | {"OMP_NUM_THREADS": "1"}
    actor = ProcessActor("engine-0", target, (settings,), env)
    engine = VllmEngine([actor], MAX_MODEL_LEN)
    try:
        engine.wait_ready()
        engine.load_weights(live)
    except BaseException:
        actor.kill()
        raise
    return ToyEngine(engine, actor, model, folder, drafts=speculation is not None)
