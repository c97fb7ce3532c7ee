"""Draft length by concurrency."""

import pytest

from specrl.errors import EngineError
from specrl.rollout.draft_lengths import check_schedule, lookup
from specrl.rollout.start import speculation_argument


@pytest.mark.parametrize(
    ("schedule", "lengths"),
    [
        ([(1, 3)], [0, 3, 3, 3, 3, 3]),
        ([(2, 7), (4, 3), (5, 0)], [0, 7, 7, 3, 3, 0]),
        ([(2, 2), (100, 1)], [0, 2, 2, 1, 1, 1]),
        ([(100, 4)], [0, 4, 4, 4, 4, 4]),
    ],
)
def test_each_number_of_requests_has_its_length(
    schedule: list[tuple[int, int]], lengths: list[int]
) -> None:
    check_schedule(schedule, longest=7)
    assert lookup(schedule, max_requests=5) == lengths


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([], "ascend from 1"),
        ([(0, 1)], "ascend from 1"),
        ([(4, 1), (4, 0)], "ascend from 1"),
        ([(4, 1), (2, 0)], "ascend from 1"),
        ([(4, 8)], "draft length 8 is not allowed.* up to 7"),
        ([(4, -1)], "draft length -1 is not allowed"),
    ],
)
def test_a_wrong_schedule_is_refused(schedule: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        check_schedule(schedule, longest=7)


def test_vllm_starts_with_a_draft_length_that_can_change() -> None:
    config = {"method": "ngram", "num_speculative_tokens": 3}
    argument = speculation_argument(config, on_cpu=True)
    assert argument is not None
    assert argument["num_speculative_tokens_per_batch_size"] == [(1, 1, 3)]
    assert speculation_argument(None, on_cpu=True) is None


def test_block_verification_is_vllms_own_on_a_gpu_only() -> None:
    config = {"num_speculative_tokens": 3, "rejection_sample_method": "block"}
    on_gpu = speculation_argument(config, on_cpu=False)
    on_cpu = speculation_argument(config, on_cpu=True)
    assert on_gpu is not None
    assert on_cpu is not None
    assert on_gpu["rejection_sample_method"] == "block"
    assert "rejection_sample_method" not in on_cpu
