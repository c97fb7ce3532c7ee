"""Files that survive a power cut and show when they were damaged."""

import os
from pathlib import Path

import xxhash

_CHUNK_BYTES = 1 << 24


def files_below(folder: Path) -> list[Path]:
    """Every file in the folder and its subfolders, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def digest(path: Path) -> str:
    """xxh3-64 of the file's bytes, in hex."""
    state = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest()


def sync(path: Path) -> None:
    """Returns once the file, or the folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
