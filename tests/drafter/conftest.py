"""A policy on disk."""

from pathlib import Path

import pytest
from eagle3_folders import save_policy


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "policy")
