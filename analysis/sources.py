"""Which runs are read: folders and MLflow, filtered by experiment and date."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from analysis import folders
from analysis.mlflow_runs import MlflowRuns
from analysis.parallel import in_processes
from analysis.records import Run
from specrl.errors import UserError

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Filter:
    """`experiments` are names, with * for anything; () takes all. `since_s` is Unix time."""

    experiments: tuple[str, ...] = ()
    since_s: float | None = None

    def takes(self, run: Run, tracked_in: str = "") -> bool:
        names = {run.experiment, *([tracked_in] if tracked_in else [])}
        wanted = not self.experiments or any(
            fnmatchcase(name, pattern) for name in names for pattern in self.experiments
        )
        return wanted and (self.since_s is None or run.created_s >= self.since_s)

    def words(self) -> str:
        """As on the command line; "" where it takes all."""
        given = [f"--experiment {shlex.join(self.experiments)}"] if self.experiments else []
        given += [f"--since {_day(self.since_s)}"] if self.since_s is not None else []
        return " ".join(given)


@dataclass
class Source:
    """Runs of folders and of one MLflow, each run once; folders win, since they hold all."""

    roots: Sequence[Path]
    uri: str | None = None
    described: list[str] = field(default_factory=list)
    _there: list[tuple[str, float]] = field(default_factory=list)
    _mlflow: MlflowRuns | None = None

    def read(self, chosen: Filter, tell: Tell) -> list[Run]:
        """Raises `UserError` where nothing is left, `RunError` when MLflow fails."""
        found = [*self._from_folders(chosen, tell), *self._from_mlflow(chosen, tell)]
        once: dict[str, Run] = {}
        for run in found:
            once.setdefault(run.key, run)
        if not once:
            raise self._nothing(chosen)
        return list(once.values())

    def views(self, runs: Sequence[Run]) -> list[pd.DataFrame]:
        """Every `spec/*` metric of each run's steps."""
        own = f"{self._mlflow.uri}#" if self._mlflow is not None else None
        tracked = [run for run in runs if own is not None and run.source.startswith(own)]
        local = [run for run in runs if run not in tracked]
        frames = in_processes(folders.read_views, [Path(run.source) for run in local])
        found = dict(zip(local, frames, strict=True))
        if self._mlflow is not None:
            found |= dict(zip(tracked, self._mlflow.views(tracked), strict=True))
        return [found[run] for run in runs]

    def _nothing(self, chosen: Filter) -> UserError:
        places = ", ".join([*map(str, self.roots), *([self.uri] if self.uri else [])])
        there = {*self._there, *(self._mlflow.listed() if self._mlflow else [])}
        if not there:
            return UserError(f"no specrl run in {places}; name another, or use --paper-only")
        names = ", ".join(sorted({name or "no known name" for name, _ in there}))
        begun = sorted(begun_s for _, begun_s in there)
        return UserError(
            f"no run in {places} fits {chosen.words()}; those there are of {names} and began "
            f"{_day(begun[0])} to {_day(begun[-1])}: choose among these, or use --paper-only"
        )

    def _from_folders(self, chosen: Filter, tell: Tell) -> list[Run]:
        paths = folders.find_folders(self.roots)
        tell(f"{len(paths)} run folders")
        runs = in_processes(folders.read_folder, paths)
        if paths:
            self.described.append(f"{len(paths)} folders in {', '.join(map(str, self.roots))}")
        self._there += [(run.experiment, run.created_s) for run in runs]
        return [run for run in runs if chosen.takes(run)]

    def _from_mlflow(self, chosen: Filter, tell: Tell) -> list[Run]:
        if self.uri is None:
            return []
        tell(f"MLflow at {self.uri}")
        self._mlflow = MlflowRuns(self.uri)
        tracked = self._mlflow.read(chosen.since_s or 0.0)
        self.described.append(f"{len(tracked)} runs in MLflow at {self.uri}")
        return [run for name, run in tracked if chosen.takes(run, name)]


def _day(time_s: float) -> str:
    """As `since` reads it, to the minute."""
    try:
        return datetime.fromtimestamp(time_s).isoformat(timespec="minutes")
    except (OverflowError, OSError, ValueError):  # of a damaged record
        return f"{time_s:g} s"


def since(text: str) -> float:
    """Unix time of `2026-11-30` or `2026-11-30T12:00`, local time unless it says otherwise.

    Raises `UserError` for anything else.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UserError(
            f"--since {text} is no date; write 2026-11-30 or 2026-11-30T12:00"
        ) from None
