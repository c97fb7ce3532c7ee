"""A snapshot's file on its way into a worker process."""

from collections.abc import Mapping
from dataclasses import dataclass

from specrl.rollout.snapshot_file import Expected


@dataclass(frozen=True)
class StagedFile:
    """A snapshot's file of one model, and what must be in it."""

    path: str
    checksums: Mapping[str, str]
    expected: Mapping[str, Expected]
