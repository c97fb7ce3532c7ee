"""One GRPO step of TRL with transformers generation, timed. Runs in .venv-trl, not in .venv."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class StepClock(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Wall-clock seconds of each optimizer step, generation and rewards included."""

    def __init__(self) -> None:
        self.steps_s: list[float] = []
        self.start_s = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start_s = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps_s.append(time.perf_counter() - self.start_s)


def alternating_reward(completions: list[Any], **_: Any) -> list[float]:
    """0, 1, 0, 1 ...: every group has an advantage, and scoring costs nothing."""
    return [float(index % 2) for index in range(len(completions))]


def config(task: dict[str, Any], threads: int, output_dir: str) -> GRPOConfig:
    torch.set_num_threads(threads)
    rollouts = task["num_prompts"] * task["samples"]
    # The model itself is bf16, so autocast only adds casts; memory is no worry at this size.
    faster = {"bf16": False, "gradient_checkpointing": False} if task["tuned"] else {}
    return GRPOConfig(
        output_dir=output_dir,
        use_cpu=True,
        per_device_train_batch_size=task["micro_batch"],
        gradient_accumulation_steps=rollouts // task["micro_batch"],
        num_generations=task["samples"],
        max_completion_length=task["response_tokens"],
        generation_kwargs={"min_new_tokens": task["response_tokens"]},
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        num_iterations=1,
        learning_rate=1e-6,
        max_steps=task["steps"],
        save_strategy="no",
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        **faster,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="local Hugging Face folder")
    parser.add_argument("--task", type=Path, required=True, help="JSON of prompts and sizes")
    parser.add_argument("--result", type=Path, required=True, help="JSON to write")
    arguments = parser.parse_args()
    task = json.loads(arguments.task.read_text())
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16)
    clock = StepClock()
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=alternating_reward,
        args=config(task, len(os.sched_getaffinity(0)), str(arguments.result.parent / "trl")),
        train_dataset=Dataset.from_list([{"prompt": text} for text in task["prompts"]]),
        processing_class=tokenizer,
        callbacks=[clock],
    )
    trainer.train()
    lengths = [log["completions/mean_length"] for log in trainer.state.log_history[:-1]]
    arguments.result.write_text(
        json.dumps({"steps_s": clock.steps_s, "mean_response_tokens": lengths})
    )
    sys.stdout.write(f"TRL steps: {[round(step_s, 1) for step_s in clock.steps_s]} s\n")


if __name__ == "__main__":
    main()
