"""Which tests share a process when `make test` spreads them over two."""

from pathlib import Path

import pytest

SHARED_ENGINES = Path(__file__).parent / "rollout"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, and those of tests/rollout, which share real engines."""
    for item in items:
        shared = SHARED_ENGINES in item.path.parents
        item.add_marker(pytest.mark.xdist_group(str(SHARED_ENGINES if shared else item.path)))
