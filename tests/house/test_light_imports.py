"""A command line that only checks a config must not pay for an engine."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "vllm", "ray", "mlflow", "megatron", "transformers", "pandas", "pyarrow"}
LIGHT_MODULES = (
    "specrl.cli.train",
    "specrl.cli.status",
    "specrl.build",
    "specrl.loop",
    "specrl.config.door",
    "hydra_plugins.specrl_launchers.local",
    "hydra_plugins.specrl_launchers.slurm",
)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_importing_it_imports_nothing_heavy(module: str, root: Path) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert module.partition(".")[0] in imported
    assert imported & HEAVY == set()
