"""Real engines shared by the slow tests."""

from collections.abc import Iterator

import pytest
from rollout_engines import (
    EAGLE3,
    GREEDY_DRAFT,
    NGRAM,
    PROBABILISTIC_DRAFT,
    ToyEngine,
    start_toy,
)


@pytest.fixture(scope="session", params=["none", "ngram", "draft_model", "eagle3"])
def toy_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ToyEngine]:
    speculation = {
        "none": None,
        "ngram": NGRAM,
        "draft_model": PROBABILISTIC_DRAFT,
        "eagle3": EAGLE3,
    }[request.param]
    started = start_toy(tmp_path_factory.mktemp(request.param), speculation)
    yield started
    started.actor.kill()


@pytest.fixture(scope="session")
def tied_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyEngine]:
    """Tied embeddings, a tokenizer, a draft model that drafts greedily; breaks on request."""
    target = "breaking_worker:BreakingWorker"
    started = start_toy(tmp_path_factory.mktemp("tied"), GREEDY_DRAFT, tied=True, target=target)
    yield started
    for _ in range(2):
        started.actor.call("close")
    started.actor.kill()
