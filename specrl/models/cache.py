"""Folders that are made once, shared by processes, and rebuilt when damaged."""

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import xxhash

from specrl.config.model import ModelConfig
from specrl.durable import DISK_FULL, digest, files_below, sync
from specrl.errors import UserError
from specrl.process import this_process

MARKER = "specrl-cache.json"
WAIT_POLL_S = 0.2


def cached_folder(
    root: Path,
    name: str,
    make: Callable[[Path], None],
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """Folder `root/name` as `make` fills it; made at most once, also by processes that race.

    `make` gets an empty folder; what it wrote appears under the final name in one rename, with a
    marker that holds size and xxh3-64 of every file. A folder whose files differ from its marker
    is made again. `name` must change whenever the content would. `note` is told which process is
    waited for; should that one die, the first that waits takes over. Raises `UserError` when
    `root` cannot be written or the disk is full.
    """
    folder = root / name
    if is_intact(folder):
        return folder
    try:
        with _lock(root, name, note):
            if not is_intact(folder):
                _build(root, name, make)
    except OSError as error:
        raise _explained(root, error) from error
    return folder


def resumable_folder(
    root: Path,
    name: str,
    make: Callable[[Path, Path], None],
    note: Callable[[str], None],
) -> Path:
    """`cached_folder` for what takes minutes: `make(folder, work)` goes on where `work` was left.

    `work` outlives a kill and is removed once the folder stands. `note` is told about a wait.
    """
    work = work_of(root / name)
    folder = cached_folder(root, name, lambda target: make(target, work), note)
    shutil.rmtree(work, ignore_errors=True)
    return folder


def work_of(place: Path) -> Path:
    """What a build of a `resumable_folder` that was interrupted has left."""
    return place.with_name(f".{place.name}.work")


def cache_root(config: ModelConfig) -> Path:
    """`model.cache_dir`, absolute."""
    return Path(config.cache_dir).expanduser().absolute()


def folder_name(label: str, recipe: str) -> str:
    """Cache name for content that depends on `recipe` alone; `label` is for the reader."""
    return re.sub(r"[^\w.-]", "_", label) + "-" + xxhash.xxh3_64(recipe.encode()).hexdigest()


def is_intact(folder: Path) -> bool:
    """True when every file that the marker lists has its size and checksum."""
    try:
        files = json.loads((folder / MARKER).read_text())["files"]
        return all(
            (folder / name).stat().st_size == size and digest(folder / name) == expected
            for name, (size, expected) in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _build(root: Path, name: str, make: Callable[[Path], None]) -> None:
    """Fills a private folder and renames it into place; the caller holds the lock."""
    for stale in root.glob(f".{name}.*.tmp"):
        shutil.rmtree(stale)
    temporary = root / f".{name}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        make(temporary)
        _seal(temporary)
        if (root / name).exists():
            shutil.rmtree(root / name)
        temporary.rename(root / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _seal(folder: Path) -> None:
    """Writes the marker; files reach the disk before it does, so that it never vouches for less."""
    files = {}
    for path in files_below(folder):
        files[str(path.relative_to(folder))] = (path.stat().st_size, digest(path))
        path.chmod(0o644)  # safetensors writes 0600; a cache may serve a whole group
        sync(path)
    (folder / MARKER).write_text(json.dumps({"files": files}, indent=1))
    sync(folder / MARKER)


@contextmanager
def _lock(root: Path, name: str, note: Callable[[str], None]) -> Iterator[None]:
    """Waits for the other processes that make `name`; the kernel frees the lock of a dead one."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / f".{name}.lock").open("a+", encoding="utf-8") as file:
        told = ""
        while not _locked(file):
            file.seek(0)
            builder = file.read().strip()
            if builder and builder != told:
                note(f"{builder} builds {root / name}; waiting for it")
                told = builder
            time.sleep(WAIT_POLL_S)
        file.truncate(0)
        file.write(str(this_process()))
        file.flush()
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _explained(root: Path, error: OSError) -> UserError:
    reason = "the disk is full" if error.errno in DISK_FULL else str(error)
    return UserError(
        f"model.cache_dir={root}: {reason}; free space there or set SPECRL_CACHE (or "
        "model.cache_dir) to a folder you can write to"
    )
