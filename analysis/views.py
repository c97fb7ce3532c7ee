"""Acceptance of an arm seen from several sides, pooled over its counted steps."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.records import ArmKey, Interval, ViewRow
from analysis.resample import Means, intervals

VIEWS = ("lag", "length", "decile", "entropy", "token_entropy")
_BUCKET = re.compile(r"spec/by_(\w+?)/([^/]+)/num_drafts")
_POSITION = re.compile(r"spec/drafted_pos_(\d+)")


def view_rows(title: str, key: ArmKey, seeds: Sequence[pd.DataFrame]) -> tuple[ViewRow, ...]:
    """Rows of every view; `seeds` has the `spec/*` metrics of the counted steps, one per run.

    Means are weighted by drafts. Buckets that no run has are left out.
    """
    known = set().union(*(frame.columns for frame in seeds))
    columns = sorted(known)
    frames = [frame.reindex(columns=columns).fillna(0.0) for frame in seeds]
    rows = [
        _row(title, key, "position", match[1], int(match[1]), _position(frames, match[1]))
        for column in columns
        if (match := _POSITION.fullmatch(column))
    ]
    rows.sort(key=lambda row: row.order)
    for view in VIEWS:
        buckets = [
            m[2]
            for c in columns
            if (m := _BUCKET.fullmatch(c))
            and m[1] == view
            and f"spec/by_{view}/{m[2]}/acceptance_length" in known
        ]
        rows += [
            _row(title, key, view, bucket, order, _lengths(frames, f"spec/by_{view}/{bucket}"))
            for order, bucket in enumerate(sorted(buckets, key=_by_number))
        ]
    return tuple(row for row in rows if row.count > 0)


def position_rates(seeds: Sequence[pd.DataFrame]) -> tuple[float, ...]:
    """Per draft position, the chance that a draft is accepted up to and with it.

    1 + their sum up to k is the acceptance length that drafts cut at k would have.
    """
    frames = [frame.fillna(0.0) for frame in seeds if "spec/num_drafts" in frame]
    drafts = sum(float(frame["spec/num_drafts"].sum()) for frame in frames)
    rates: list[float] = []
    while drafts and any(f"spec/drafted_pos_{len(rates)}" in frame for frame in frames):
        kept = sum(_accepted(frame, str(len(rates))).sum() for frame in frames)
        rates.append(float(kept) / drafts)
    return tuple(rates)


def _accepted(frame: pd.DataFrame, position: str) -> pd.Series:
    names = f"spec/acceptance_rate_pos_{position}", f"spec/drafted_pos_{position}"
    if not set(names) <= set(frame.columns):
        return pd.Series(0.0, index=frame.index)
    return frame[names[0]] * frame[names[1]]


def _position(seeds: Sequence[pd.DataFrame], position: str) -> list[pd.DataFrame]:
    return [
        pd.DataFrame(
            {"part": _accepted(frame, position), "whole": frame[f"spec/drafted_pos_{position}"]}
        )
        for frame in seeds
    ]


def _lengths(seeds: Sequence[pd.DataFrame], prefix: str) -> list[pd.DataFrame]:
    found = []
    for frame in seeds:
        drafts = frame[f"{prefix}/num_drafts"]
        found.append(
            pd.DataFrame({"part": frame[f"{prefix}/acceptance_length"] * drafts, "whole": drafts})
        )
    return found


def _row(
    title: str, key: ArmKey, view: str, bucket: str, order: int, seeds: Sequence[pd.DataFrame]
) -> ViewRow:
    count = sum(float(frame["whole"].sum()) for frame in seeds)
    found = intervals(seeds, _ratio).get("value", Interval(float("nan")))
    return ViewRow(title, key.label, view, bucket, order, found.value, count, found.low, found.high)


def _ratio(means: Means) -> dict[str, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"value": np.where(means["whole"] > 0, means["part"] / means["whole"], np.nan)}


def _by_number(bucket: str) -> float:
    number = re.match(r"[\d.]+", bucket)
    return float(number[0]) if number else 0.0
