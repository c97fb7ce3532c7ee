"""A benchmark's figures as JSON in results/, with the machine, the commit and the date."""

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from specrl.telemetry.source import cpu_model, git_commit

ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    """To be asked before a benchmark runs: its load is part of the answer."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
    }


def publish(
    measured: Mapping[str, Any], before: Mapping[str, Any], code: str, name: str | None
) -> None:
    """Prints the figures and writes them to results/<name>.json, None: prints them only.

    `before` is what `machine` said, `code` the folder of the repository that was measured.
    """
    facts = {
        "machine": before,
        "commit": git_commit(ROOT / code),
        "date": datetime.now(UTC).date().isoformat(),
    }
    text = json.dumps({**measured, **facts}, indent=1) + "\n"
    if name is not None:
        target = ROOT / "benchmarks" / "results" / f"{name}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
    sys.stdout.write(text)
