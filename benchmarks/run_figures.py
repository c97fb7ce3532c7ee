"""The figures of one run folder as JSON: stage seconds, rates, overhead, the accuracy curve."""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result import machine

from specrl.algo.comparison import STAGES
from specrl.errors import UserError
from specrl.telemetry.jsonl import STEP_MARK, StepRecord, read_run

TOKEN_STAGES = ("generation", "logprob", "training")


def figures(folder: Path) -> dict[str, Any]:
    """Medians over the steps, the first left out as warm-up where there are others."""
    log = read_run(folder)
    steps = [r.metrics for r in log.records if STEP_MARK in r.metrics]
    if log.info is None or not steps:
        raise UserError(f"{folder} holds no step of a run; give a folder that specrl named")
    steps = steps[1:] or steps
    stage_s = {stage: _median(steps, f"time/{stage}_s") for stage in STAGES}
    tokens = _median(steps, "rollout/tokens")
    return {
        "overrides": [o for o in log.info.overrides if not o.startswith("output_dir=")],
        "commit": log.info.git_commit,
        "machine": machine(),
        "steps": len(steps),
        "step_s": _median(steps, STEP_MARK),
        "stage_s": stage_s,
        "response_tokens_a_step": tokens,
        "response_tokens_per_s": {
            stage: round(tokens / stage_s[stage], 1) for stage in TOKEN_STAGES if stage_s[stage]
        },
        "overhead_share": round(
            sum(step["time/overhead_s"] for step in steps) / sum(step[STEP_MARK] for step in steps),
            5,
        ),
        "accuracy": _curve(log.records),
    }


def _curve(records: Sequence[StepRecord]) -> list[dict[str, float]]:
    began_s = records[0].time_s
    return [
        {
            "step": record.step,
            "minutes": round((record.time_s - began_s) / 60, 1),
            "accuracy": round(record.metrics["eval/accuracy"], 4),
            "stderr": round(record.metrics["eval/stderr"], 4),
        }
        for record in records
        if "eval/accuracy" in record.metrics
    ]


def _median(steps: Sequence[Any], name: str) -> float:
    return round(float(statistics.median(step[name] for step in steps)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run, as outputs/<run>")
    try:
        measured = figures(parser.parse_args().run)
    except UserError as error:
        parser.error(str(error))
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
