"""A Ray that does not start is one line; no Ray is started here."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from specrl.cluster.local_ray import LocalRay
from specrl.errors import RunError


class SlowRay:
    """Stands for the module: its `init` fails as Ray's does when the machine is too busy."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.ended = False

    def init(self, logging_level: int, **_: object) -> None:
        logger = logging.getLogger("ray")
        logger.setLevel(logging_level)
        logger.error("Failed to start the dashboard")
        raise self.error

    def shutdown(self) -> None:
        self.ended = True


@pytest.mark.parametrize(
    "error",
    [
        Exception("The current node timed out during startup. This could happen because"),
        ConnectionError("Could not read '...' from GCS"),
        AssertionError("session dir"),
    ],
)
def test_a_start_that_fails_is_one_line_and_leaves_nothing(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ray = SlowRay(error)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(RunError) as caught:
        LocalRay(tmp_path)
    assert str(caught.value).startswith(f"Ray does not start: {error}; ")
    assert "\n" not in str(caught.value)
    assert ray.ended
    assert caplog.records == []


def test_fewer_gpus_than_asked_for_end_ray_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    ray = SimpleNamespace(
        init=lambda **_: None,
        cluster_resources=lambda: {"CPU": 2.0},
        shutdown=lambda: ended.append(True),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(ValueError, match="this machine has"):
        LocalRay(tmp_path, num_gpus=2)
    assert ended == [True]
