"""Which tests share a process, and which start first, when `make test` spreads them over two."""

import gc
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ENGINES, SLURM = "tests/rollout/", "tests/slurm/"
LONG = (SLURM, "tests/runs/test_sweep_run", "tests/runs/", "tests/learner/", ENGINES)
"""The longest first. Most of those of Slurm wait for something: they go well with any other."""

COMPOSING = ("tests/cli/", "tests/config/", "tests/test_build_draft.py")
"""Files of quick tests that take longest: a config takes a tenth of a second to compose."""

DRAFTERS = ("none", "ngram", "draft_model", "eagle3")


class ByEngine(LoadScopeScheduling):
    """A file's tests stay together; those of tests/rollout share real engines, one a drafter.

    Those of tests/slurm share a cluster.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        if path.startswith(SLURM):
            return SLURM
        if not path.startswith(ENGINES):
            return path
        case = test.partition("[")[2].removesuffix("]").split("-")
        return ENGINES + next((drafter for drafter in DRAFTERS if drafter in case), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Not xdist's own loadgroup: with pytest 9.2 version 3.8 puts no test into its group."""
    config.option.loadscopereorder = False
    return ByEngine(config, log)


def pytest_configure() -> None:
    """What imports leave behind is no garbage: looked through again and again, it takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make fast` does not import files of slow tests: Megatron alone takes seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text() or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long groups first and quick tests last, so that both processes end together."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        quick = item.get_closest_marker("slow") is None
        first = COMPOSING if quick else LONG
        places = (i for i, start in enumerate(first) if item.nodeid.startswith(start))
        return quick, next(places, len(first))

    items.sort(key=place)
