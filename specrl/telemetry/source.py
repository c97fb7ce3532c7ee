"""Which source code a run used."""

import subprocess
from pathlib import Path

GIT_TIMEOUT_S = 5.0


def git_commit(folder: Path) -> str | None:
    """Commit of `folder`'s repository, with "-dirty" after local changes.

    None where there is no git, no repository, or one that does not track the folder (a virtual
    environment inside somebody's repository).
    """
    if not _git(folder, "ls-files", "--", "."):
        return None
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
