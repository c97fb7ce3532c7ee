"""The draft vocabulary: choice, coverage, and the checkpoint's maps."""

import numpy as np
import pytest

from specrl.algo import draft_vocabulary as vocabulary
from specrl.errors import UserError


def test_the_most_frequent_tokens_are_chosen_and_ties_go_to_the_lower_id():
    counts = np.array([0, 5, 2, 9, 2, 0])
    assert vocabulary.choose_draft_vocabulary(counts, 3).tolist() == [1, 2, 3]


def test_what_is_left_after_the_counted_tokens_is_filled_by_the_lowest_ids():
    counts = np.array([0, 0, 0, 0, 7])
    assert vocabulary.choose_draft_vocabulary(counts, 3).tolist() == [0, 1, 4]


def test_a_draft_vocabulary_above_the_policys_is_refused():
    with pytest.raises(UserError, match=r"drafter.vocab_size=6 .* of 5;"):
        vocabulary.choose_draft_vocabulary(np.zeros(5, dtype=np.int64), 6)


def test_coverage_is_the_share_of_tokens_not_of_ids():
    counts = np.array([90, 6, 4])
    assert vocabulary.coverage(counts, np.array([0, 2])) == pytest.approx(0.94)
    assert vocabulary.coverage(np.zeros(3, dtype=np.int64), np.array([0])) == 0.0


def test_maps_go_there_and_back():
    target_ids = np.sort(np.random.default_rng(0).choice(500, 60, replace=False)).astype(np.int64)
    d2t, t2d = vocabulary.offsets(target_ids), vocabulary.mask(target_ids, 500)
    assert (np.arange(60) + d2t == target_ids).all()
    assert t2d.sum() == 60
    assert (vocabulary.from_offsets(d2t) == target_ids).all()
    assert (vocabulary.from_mask(t2d) == target_ids).all()
    back = vocabulary.draft_ids(target_ids, 500)
    assert (back[target_ids] == np.arange(60)).all()
    assert (back[~t2d] == vocabulary.OUTSIDE).all()
