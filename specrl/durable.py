"""Files that survive a power cut and show when they were damaged."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import xxhash

from specrl.errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FAULTS = {
    **dict.fromkeys(DISK_FULL, "make room there"),
    errno.EROFS: "make it writable",
    errno.EIO: "check that disk",
}
"""What a person does about a disk that takes nothing, by the error number of an `OSError`."""
_CHUNK_BYTES = 1 << 24
_LEAST_BYTES = 1 << 14  # a disk with less does not even take the note that it is full


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


def is_full(folder: Path) -> bool:
    """Whether the folder's disk takes nothing any more: it has no room, or none for a new file."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    no_more_files = disk.f_files > 0 and disk.f_favail == 0  # some disks count none
    return no_more_files or disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """A reader finds the old text or the new one, never a part, whatever is killed.

    `mode` are the file's permissions, less the umask.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    try:
        with open(partial, "w", encoding="utf-8", opener=create) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_json(path: Path, whose: str, fix: str) -> dict[str, Any]:
    """The JSON object in a file. Raises `UserError` that begins with `whose` and ends in `fix`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{whose} has no {path.name}; {fix}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{whose}: {path.name} cannot be read ({error}); {fix}") from None
    if not isinstance(values, dict):
        raise UserError(f"{whose}: {path.name} is not a JSON object; {fix}")
    return values
