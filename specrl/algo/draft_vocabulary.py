"""Which of the policy's tokens a draft can propose.

Legend: V policy vocabulary, D draft vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

from specrl.errors import UserError

Int = NDArray[np.int64]


def check_size(size: int, vocab_size: int) -> None:
    """Raises `UserError` for a draft vocabulary above the policy's."""
    if size > vocab_size:
        raise UserError(
            f"drafter.vocab_size={size} is above the policy's vocabulary of {vocab_size}; "
            "use at most that, or null for all of it"
        )


def choose_draft_vocabulary(counts_V: Int, size: int) -> Int:
    """The `size` most frequent policy ids, ascending; lower ids first where counts are equal.

    Raises `UserError` for a size above the policy's vocabulary.
    """
    check_size(size, len(counts_V))
    by_count = np.argsort(-counts_V.astype(np.int64), kind="stable")
    return np.sort(by_count[:size]).astype(np.int64)


def coverage(counts_V: Int, target_ids_D: Int) -> float:
    """Share of the counted tokens that the draft can propose, 0..1; 0 where none was counted."""
    total = int(counts_V.sum())
    return float(counts_V[target_ids_D].sum()) / total if total else 0.0
