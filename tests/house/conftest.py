"""The files that the house rules are about."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def tracked_files() -> list[Path]:
    """Every file that git has or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in found if path.is_file()]


@pytest.fixture(scope="session")
def python_files(tracked_files: list[Path]) -> list[Path]:
    return [path for path in tracked_files if path.suffix == ".py"]
