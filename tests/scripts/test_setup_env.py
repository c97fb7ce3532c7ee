"""Set-up: what is pinned, when it is up to date, and one line for what goes wrong."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def setup_env() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_env", ROOT / "scripts" / "setup_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs make as a user would, also when a make runs this test."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_every_requirement_is_pinned(setup_env: ModuleType, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = setup_env.read_pins(setup_env.PINS_FILES[extra].read_text())
    assert setup_env.unpinned(setup_env.direct_requirements(project, extra), pins) == []


def test_a_requirement_without_its_pin_is_named(setup_env: ModuleType) -> None:
    pins = {"ray": "2.60.0", "math-verify": "0.9.0"}
    wanted = ["ray==2.61.0", "math_verify[antlr4-9-3]==0.9.0", "rich"]
    assert setup_env.unpinned(wanted, pins) == ["ray==2.61.0", "rich"]


def test_the_cpu_pins_leave_out_what_breaks_transformers(setup_env: ModuleType) -> None:
    pins = setup_env.read_pins(setup_env.PINS_FILES["cpu"].read_text())
    assert not set(pins) & set(setup_env.UNWANTED)
    assert "llama-cpp-python" not in pins


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "TORCH_INDEX"),
        ("ERROR: No matching distribution found for xgrammar==0.2.8", "xgrammar==0.2.8"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying (Retry(total=4))\nERROR: No matching distribution", "network"),
        ("  ERROR: Failed building wheel for pycosat\nERROR: x", "pycosat has no wheel"),
        ("ERROR: one\nERROR: the last one", "the last one"),
        ("", "failed"),
    ],
)
def test_a_failed_pip_is_explained_in_one_line(setup_env: ModuleType, log: str, words: str) -> None:
    line = setup_env.explain(log, "torch")
    assert words in line
    assert "\n" not in line


def test_a_full_disk_is_found_before_anything_is_installed(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=2**30))
    monkeypatch.setattr(setup_env, "shutil", little)
    with pytest.raises(setup_env.SetupError, match=r"needs 6 GiB free .* has 1\.0"):
        setup_env.check_disk("cpu")


def test_an_interrupted_set_up_leaves_no_stamp_to_believe_in(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup_env, "STAMP", tmp_path / "stamp.json")
    monkeypatch.setattr(setup_env, "PYTHON", Path(sys.executable))
    assert setup_env.read_stamp() == {}
    (tmp_path / "stamp.json").write_text('{"signature": "s", "extra": "gpu"}')
    assert setup_env.read_stamp() == {"signature": "s", "extra": "gpu"}


@pytest.fixture
def finished(setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The stamp of a finished set-up; one that had to install again would raise."""

    def installs(extra: str, fresh: bool) -> None:
        raise AssertionError(f"installs {extra}, {fresh=}")

    stamp = tmp_path / "stamp.json"
    monkeypatch.setattr(setup_env, "STAMP", stamp)
    monkeypatch.setattr(setup_env, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(setup_env, "install", installs)
    stamp.write_text(json.dumps({"signature": setup_env.signature("cpu"), "extra": "cpu"}))
    return stamp


@pytest.mark.parametrize("extra", ["", "cpu"])
def test_a_second_set_up_starts_no_process_and_writes_nothing(
    setup_env: ModuleType, finished: Path, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(setup_env, "subprocess", None)
    before, began_s = finished.stat().st_mtime_ns, time.process_time()
    setup_env.set_up(extra)
    assert time.process_time() - began_s < 0.5
    assert finished.stat().st_mtime_ns == before
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "fresh"), [("constraints.txt", False), ("pyproject.toml", False), ("", True)]
)
def test_what_a_set_up_depends_on_brings_it_up_to_date(
    setup_env: ModuleType, finished: Path, name: str, fresh: bool, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    for file in ("constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setitem(setup_env.PINS_FILES, "cpu", tmp_path / "constraints.txt")
    finished.write_text(json.dumps({"signature": setup_env.signature("cpu"), "extra": "cpu"}))
    setup_env.set_up("")
    if name == "":
        finished.unlink()
    else:
        text = (tmp_path / name).read_text()
        more = "new==1.0\n" if name == "constraints.txt" else ""
        (tmp_path / name).write_text(text.replace("dependencies = [", 'dependencies = ["new",', 1)
                                     + more)  # fmt: skip
    with pytest.raises(AssertionError, match=f"installs cpu, {fresh=}"):
        setup_env.set_up("")


def test_the_wrong_python_is_one_line() -> None:
    done = make("setup", "PYTHON=/bin/false")
    first, *rest = done.stderr.splitlines()
    assert done.returncode != 0
    assert first.startswith("specrl needs Python 3.11 and '/bin/false' is not one")
    assert all(line.startswith("make: ***") for line in rest)


def test_an_unknown_extra_is_one_line() -> None:
    done = make("setup", "EXTRA=tpu", f"PYTHON={sys.executable}")
    assert done.stderr.splitlines()[0] == (
        "set-up failed: EXTRA=tpu is not an extra; choose cpu or gpu"
    )
    assert done.returncode != 0
