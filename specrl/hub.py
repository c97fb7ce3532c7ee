"""Files of a Hugging Face hub repository, with one readable line when the hub cannot give them."""

import re
from collections.abc import Sequence
from pathlib import Path

from specrl.errors import UserError

CONTACT_TIMEOUT_S = 10.0
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def looks_local(path: str) -> bool:
    """True when `path` can only be meant as, or is, a local file or folder."""
    return (
        path.startswith(("/", ".", "~"))
        or Path(path).expanduser().exists()
        or _REPO_ID.fullmatch(path) is None
    )


def hub_snapshot(
    repo_id: str, *, repo_type: str, revision: str | None, patterns: Sequence[str], fix: str
) -> Path:
    """Local folder with the repository's files that match `patterns`, downloaded where needed.

    What is in the local hub cache is used when the hub cannot be reached. `fix` says what the user
    can do instead; it ends the `UserError` raised when the files are neither there nor to be had.
    """
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fetch(local: bool) -> Path:
        return Path(
            huggingface_hub.snapshot_download(
                repo_id,
                repo_type=repo_type,
                revision=revision,
                allow_patterns=list(patterns),
                etag_timeout=CONTACT_TIMEOUT_S,
                local_files_only=local,
            )
        )

    refused = _refusal(repo_id, repo_type, revision)
    try:
        return fetch(local=refused is not None)
    except LocalEntryNotFoundError:
        where = "" if revision is None else f" at revision {revision}"
        raise UserError(
            f"{repo_id}{where}: {refused or 'the download failed'}, and it is not in the local "
            f"hub cache; {fix}; a local folder is written ./{repo_id}"
        ) from None
    except Exception as error:  # the HTTP library behind the hub client differs by version
        raise UserError(f"{repo_id}: download failed ({_short(error)}); {fix}") from None


def cached_snapshot(repo_id: str, revision: str | None, patterns: Sequence[str]) -> Path | None:
    """Folder of a model in the local hub cache; None without one. Asks no hub."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = huggingface_hub.snapshot_download(
            repo_id, revision=revision, allow_patterns=list(patterns), local_files_only=True
        )
    except LocalEntryNotFoundError:
        return None
    return Path(folder)


def _refusal(repo_id: str, repo_type: str, revision: str | None) -> str | None:
    """Why the hub cannot be asked; None when it answered. One request, no retries."""
    import huggingface_hub

    try:
        huggingface_hub.HfApi().repo_info(
            repo_id, repo_type=repo_type, revision=revision, timeout=CONTACT_TIMEOUT_S
        )
    except Exception as error:  # the HTTP library behind the hub client differs by version
        return f"the Hugging Face hub did not give it ({_short(error)})"
    return None


def _short(error: Exception) -> str:
    """Type and first line of an error."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__
