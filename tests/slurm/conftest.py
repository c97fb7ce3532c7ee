"""A real Slurm of two nodes for the tests here."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_points import Submitted, submit_ending
from two_nodes import missing, two_nodes

REQUIRED = "SPECRL_REQUIRE_SLURM"
"""Set in CI: there these tests may not be skipped."""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that both nodes see; Slurm's commands work in this process meanwhile."""
    if problem := missing():
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set and {problem}")
        pytest.skip(problem)
    folder = tmp_path_factory.mktemp("slurm")
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # jobs find what they are to run
    with two_nodes(folder / "cluster") as env:
        os.environ.update(env)
        try:
            yield folder
        finally:
            for name in env.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def jobs(slurm: Path) -> Iterator[dict[str, Submitted]]:
    """By what they wait for: they do it while the other tests compute."""
    submitted = submit_ending(slurm)
    yield submitted
    for _, job in submitted.values():
        job.kill()
