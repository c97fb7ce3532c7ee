"""Which of the policy's tokens a draft can propose, and the maps between the two vocabularies.

Legend: V policy vocabulary, D draft vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

from specrl.errors import UserError

Int = NDArray[np.int64]
OUTSIDE = -1  # draft id of a token that the draft cannot propose


def choose_draft_vocabulary(counts_V: Int, size: int) -> Int:
    """The `size` most frequent policy ids, ascending; lower ids first where counts are equal.

    Raises `UserError` for a size above the policy's vocabulary.
    """
    if size > len(counts_V):
        raise UserError(
            f"drafter.vocab_size={size} is above the policy's vocabulary of {len(counts_V)}; "
            "use at most that, or null for all of it"
        )
    by_count = np.argsort(-counts_V.astype(np.int64), kind="stable")
    return np.sort(by_count[:size]).astype(np.int64)


def coverage(counts_V: Int, target_ids_D: Int) -> float:
    """Share of the counted tokens that the draft can propose, 0..1; 0 where none was counted."""
    total = int(counts_V.sum())
    return float(counts_V[target_ids_D].sum()) / total if total else 0.0


def offsets(target_ids_D: Int) -> Int:
    """The checkpoint's `d2t`: policy id minus draft id."""
    return target_ids_D - np.arange(len(target_ids_D), dtype=np.int64)


def from_offsets(d2t_D: Int) -> Int:
    """Policy ids from the checkpoint's `d2t`."""
    return d2t_D + np.arange(len(d2t_D), dtype=np.int64)


def mask(target_ids_D: Int, vocab_size: int) -> NDArray[np.bool_]:
    """The checkpoint's `t2d` [V]: which policy ids the draft can propose."""
    known_V = np.zeros(vocab_size, dtype=np.bool_)
    known_V[target_ids_D] = True
    return known_V


def from_mask(t2d_V: NDArray[np.bool_]) -> Int:
    """Policy ids, ascending, from the checkpoint's `t2d`."""
    return np.flatnonzero(t2d_V).astype(np.int64)


def draft_ids(target_ids_D: Int, vocab_size: int) -> Int:
    """Draft id of every policy id [V], `OUTSIDE` where it has none."""
    ids_V = np.full(vocab_size, OUTSIDE, dtype=np.int64)
    ids_V[target_ids_D] = np.arange(len(target_ids_D))
    return ids_V
