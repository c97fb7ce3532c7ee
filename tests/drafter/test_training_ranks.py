"""Training of the draft on several data-parallel ranks."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from draft_toys import config, draft_folder, hidden_states

from specrl.drafter.training import Eagle3Trainer

pytestmark = pytest.mark.slow
TOKENS_PER_UPDATE = 40  # one update for a rank with one batch, two for two


def train(rank: int, shares: list[list[int]], folder: Path) -> None:
    """One process: fits to its share of the batches, twice, and writes its weights."""
    store = dist.FileStore(str(folder / "store"), len(shares))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=len(shares))
    trainer = Eagle3Trainer(folder / "draft", config(tokens_per_update=TOKENS_PER_UPDATE))
    batches = [hidden_states(seed=seed) for seed in shares[rank]]
    sums = [trainer.fit(batches, 1e-3, dist.group.WORLD) for _ in range(2)]
    torch.save((sums, dict(trainer.tensors())), folder / f"rank{rank}.pt")
    dist.destroy_process_group()


def results(shares, folder):
    draft_folder(folder / "draft")
    torch.multiprocessing.spawn(train, (shares, folder), nprocs=len(shares))
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(len(shares))]


def test_two_ranks_make_the_updates_of_one_with_all_tokens(tmp_path):
    draft_folder(tmp_path / "alone")
    alone = Eagle3Trainer(tmp_path / "alone", config(tokens_per_update=10**6))
    expected = [alone.fit([hidden_states(seed=0), hidden_states(seed=1)], 1e-3) for _ in range(2)]
    ranks = results([[0], [1]], tmp_path)
    for call in range(2):
        parts = [sums[call] for sums, _ in ranks]
        assert [part["updates"] for part in parts] == [1, 1]
        assert parts[0]["grad_norm"] == pytest.approx(expected[call]["grad_norm"], rel=1e-4)
        loss = sum(part["loss"] for part in parts)
        assert loss == pytest.approx(expected[call]["loss"], rel=1e-4)
    for name, tensor in alone.tensors().items():
        assert torch.equal(ranks[0][1][name], ranks[1][1][name]), name
        torch.testing.assert_close(ranks[0][1][name], tensor, rtol=1e-3, atol=2e-5)


def test_a_rank_with_fewer_or_no_tokens_makes_as_many_updates(tmp_path):
    ranks = results([[0, 1, 2], []], tmp_path)
    assert [sums[0]["updates"] for sums, _ in ranks] == [2, 2]
    assert ranks[1][0][0]["slots"] == 0
    for name, tensor in ranks[0][1].items():
        assert torch.equal(tensor, ranks[1][1][name]), name
