"""Which of the policy's tokens a draft can propose.

Legend: V policy vocabulary, D draft vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


def choose_draft_vocabulary(counts_V: Int, size: int) -> Int:
    """The `size` most frequent policy ids, ascending; lower ids first where counts are equal."""
    by_count = np.argsort(-counts_V.astype(np.int64), kind="stable")
    return np.sort(by_count[:size]).astype(np.int64)


def coverage(counts_V: Int, target_ids_D: Int) -> float:
    """Share of the counted tokens that the draft can propose, 0..1; 0 where none was counted."""
    total = int(counts_V.sum())
    return float(counts_V[target_ids_D].sum()) / total if total else 0.0
