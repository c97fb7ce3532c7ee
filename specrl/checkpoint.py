"""Checkpoints on disk: written atomically, verified before use, the newest n kept."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from specrl.durable import digest, files_below, sync
from specrl.errors import RunError

MANIFEST = "manifest.json"
STATE = "state.json"


@dataclass(frozen=True)
class RunState:
    """Where a run stands: `step` RL steps done, `cursor` training prompts drawn.

    `config` is the signature of the config that the run follows.
    """

    step: int = 0
    cursor: int = 0
    run_id: str | None = None
    config: str | None = None


class CheckpointStore:
    """The checkpoints of one run folder.

    `warn` receives one line per checkpoint that is not intact. `saved_step` is the step last saved
    or found intact through this object.
    """

    def __init__(self, folder: Path, keep: int, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.keep = keep
        self.warn = warn
        self.saved_step: int | None = None

    def save(self, state: RunState, write: Callable[[Path], None]) -> Path:
        """Lets `write` fill a folder, adds state and checksums, makes it visible in one rename."""
        final = self.folder / f"step-{state.step:06d}"
        with _staging(self.folder, final.name) as staging:
            write(staging)
            (staging / STATE).write_text(json.dumps(asdict(state)))
            manifest = {str(p.relative_to(staging)): _fingerprint(p) for p in files_below(staging)}
            (staging / MANIFEST).write_text(json.dumps(manifest, indent=1))
            _sync_all(staging)
            if final.exists():
                shutil.rmtree(final)
            staging.rename(final)
            sync(self.folder)
        self._prune(final)
        self.saved_step = state.step
        return final

    def newest(self) -> tuple[RunState, Path] | None:
        """The newest intact checkpoint; None when the run has none at all.

        Raises `RunError` when there are checkpoints and none is intact.
        """
        found = self._all()
        for folder in reversed(found):
            fault = _fault(folder)
            if fault is None:
                state = RunState(**json.loads((folder / STATE).read_text()))
                self.saved_step = state.step
                return state, folder
            self.warn(f"checkpoint {folder} is not intact ({fault}); trying the one before it")
        if found:
            raise RunError(
                f"no checkpoint in {self.folder} is intact; remove the folder or use rerun=true "
                "to start again from step 0"
            )
        return None

    def newest_or_afresh(self) -> tuple[RunState, Path] | None:
        """As `newest`, for work that can be done again: none intact clears them all."""
        try:
            return self.newest()
        except RunError:  # each damaged one has been named
            self.clear()
            return None

    def clear(self) -> None:
        """Removes every checkpoint."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _prune(self, newest: Path) -> None:
        """Keeps n; a later one is damaged, or the run would not have come back to this step."""
        found = self._all()
        kept = [folder for folder in found if folder <= newest][-self.keep :]
        for folder in set(found) - set(kept):
            shutil.rmtree(folder, ignore_errors=True)

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


@contextmanager
def _staging(folder: Path, name: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for left_by_a_kill in folder.glob(".*.partial"):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    staging = folder / f".{name}.partial"
    staging.mkdir()
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _fault(folder: Path) -> str | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        return f"{MANIFEST}: {error}"
    if not isinstance(manifest, dict) or STATE not in manifest:
        return f"{MANIFEST} does not list {STATE}"
    for name, expected in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _fingerprint(path) != expected:
            return f"{name} is truncated or corrupt"
    return None


def _fingerprint(path: Path) -> str:
    return f"{path.stat().st_size}:{digest(path)}"


def _sync_all(folder: Path) -> None:
    for path in files_below(folder):
        sync(path)
    sync(folder)
