"""The draft vocabulary: choice and coverage."""

import numpy as np
import pytest

from specrl.algo import draft_vocabulary as vocabulary


def test_the_most_frequent_tokens_are_chosen_and_ties_go_to_the_lower_id():
    counts = np.array([0, 5, 2, 9, 2, 0])
    assert vocabulary.choose_draft_vocabulary(counts, 3).tolist() == [1, 2, 3]


def test_what_is_left_after_the_counted_tokens_is_filled_by_the_lowest_ids():
    counts = np.array([0, 0, 0, 0, 7])
    assert vocabulary.choose_draft_vocabulary(counts, 3).tolist() == [0, 1, 4]


def test_coverage_is_the_share_of_tokens_not_of_ids():
    counts = np.array([90, 6, 4])
    assert vocabulary.coverage(counts, np.array([0, 2])) == pytest.approx(0.94)
    assert vocabulary.coverage(np.zeros(3, dtype=np.int64), np.array([0])) == 0.0
