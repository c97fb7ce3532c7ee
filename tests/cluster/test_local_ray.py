"""The real cluster: processes, errors that cross them, death."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil
import pytest

from specrl.cluster.local_ray import LocalRay
from specrl.errors import ActorDied, EngineError
from specrl.protocols import Cluster
from specrl.types import Placement

pytestmark = pytest.mark.slow
TARGET = "tests.cluster.test_local_ray:Counter"
SLEEPER = "tests.cluster.test_local_ray:Sleeper"


class Counter:
    """What the tests run in an actor."""

    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    def environment(self, name: str) -> tuple[str | None, int, set[int]]:
        return os.environ.get(name), os.getpid(), os.sched_getaffinity(0)

    def fail(self) -> None:
        raise EngineError("the planned error")

    def shout(self) -> None:
        sys.stderr.write("a line for the log\n")
        sys.stderr.flush()


class Sleeper:
    """Is in the middle of a call when it is killed."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Broken:
    """Cannot be built."""

    def __init__(self) -> None:
        raise EngineError("this cannot be built")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    before = signal.signal(signal.SIGTERM, tell)
    ray = LocalRay(tmp_path_factory.mktemp("logs"))
    yield ray
    ray.close()
    signal.signal(signal.SIGTERM, before)


class ToldToStopError(Exception):
    """What our handler of SIGTERM raises."""


def tell(_number: int, _frame: FrameType | None) -> None:
    raise ToldToStopError


@pytest.mark.usefixtures("cluster")
def test_sigterm_stays_with_who_handled_it_before_ray_came() -> None:
    with pytest.raises(ToldToStopError):
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_actor_keeps_its_state_in_a_process_with_its_own_environment(cluster: Cluster) -> None:
    placement = Placement(cores=(0,), env={"SPECRL_TEST": "on"})
    actor = cluster.spawn("counter", TARGET, placement, 3)
    assert actor.submit("add", 4).result() == 7
    assert actor.submit("add", amount=1).result() == 8
    value, pid, cores = actor.submit("environment", "SPECRL_TEST").result()
    assert value == "on"
    assert pid != os.getpid()
    assert cores == {0}


def test_an_error_crosses_as_the_type_it_was(cluster: Cluster) -> None:
    actor = cluster.spawn("raiser", TARGET, Placement(), 0)
    with pytest.raises(EngineError) as caught:
        actor.submit("fail").result()
    assert str(caught.value) == "the planned error"


def test_a_constructor_s_error_is_raised_by_the_first_call_as_the_type_it_was(
    cluster: Cluster,
) -> None:
    actor = cluster.spawn("broken", "tests.cluster.test_local_ray:Broken", Placement())
    with pytest.raises(EngineError, match="cannot be built"):
        actor.submit("add", 1).result()


def test_a_killed_process_is_reported_as_died_with_its_log(cluster: Cluster) -> None:
    actor = cluster.spawn("victim", TARGET, Placement(), 0)
    actor.submit("shout").result()
    _, pid, _ = actor.submit("environment", "X").result()
    os.kill(pid, signal.SIGKILL)
    said = "SIGKILL.*; the same command goes on from the last checkpoint; its log is"
    with pytest.raises(ActorDied, match=f"victim died: .*{said}") as caught:
        actor.submit("add", 1).result()
    log = Path(str(caught.value).rsplit(" ", 1)[1])
    assert "a line for the log" in log.read_text()


def test_no_process_outlives_the_cluster(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from specrl.cluster.local_ray import LocalRay;"
        "from specrl.types import Placement;"
        f"c = LocalRay(Path({str(tmp_path)!r}));"
        f"a = c.spawn('x', {TARGET!r}, Placement(), 0);"
        "print(a.submit('environment', 'X').result()[1]); c.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ends_soon(int(done.stdout.split()[-1]))


def test_killing_an_actor_on_purpose_prints_nothing(tmp_path: Path) -> None:
    script = (
        "import time; from pathlib import Path; from specrl.cluster.local_ray import LocalRay;"
        "from specrl.types import Placement;"
        f"c = LocalRay(Path({str(tmp_path)!r}));"
        f"a = c.spawn('sleeper', {SLEEPER!r}, Placement());"
        f"b = c.spawn('x', {TARGET!r}, Placement(), 0);"
        "b.submit('add', 1).result(); a.submit('sleep', 60); time.sleep(1); a.kill();"
        "time.sleep(2); c.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""


def ends_soon(pid: int) -> bool:
    """A killed process may stay a moment on a busy machine."""
    try:
        psutil.Process(pid).wait(timeout=30)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True
