"""Real engines shared by the slow tests."""

from collections.abc import Iterator

import pytest
from rollout_engines import NGRAM, ToyEngine, start_toy


@pytest.fixture(scope="session", params=["none", "ngram", "draft_model"])
def toy_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ToyEngine]:
    speculation = {"none": None, "ngram": NGRAM, "draft_model": "draft_model"}[request.param]
    started = start_toy(tmp_path_factory.mktemp(request.param), speculation)
    yield started
    started.actor.kill()


@pytest.fixture(scope="session")
def tied_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyEngine]:
    """Tied embeddings, a tokenizer, n-gram speculation."""
    started = start_toy(tmp_path_factory.mktemp("tied"), NGRAM, tied=True)
    yield started
    started.actor.kill()
