"""Verification keeps the target's distribution, whatever is drafted, and block accepts more."""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm

from specrl.rollout.drawing import CHUNK, draw
from specrl.rollout.verification import NO_TOKEN, Drafts, Verified, verify

# B requests, K draft positions, V vocabulary, D draft vocabulary

VOCAB = 4
LENGTH = 3
SAMPLES = 60_000
MODES = ["greedy drafts", "whole vocabulary", "part of it"]


@dataclass
class Model:
    """A distribution over the next token for every prefix of up to LENGTH tokens."""

    table: torch.Tensor

    @classmethod
    def random(cls, seed: int, sharpness: float, ids: list[int]) -> "Model":
        generator = torch.Generator().manual_seed(seed)
        prefixes = sum(VOCAB**n for n in range(LENGTH + 1))
        logits = sharpness * torch.randn(prefixes, VOCAB, generator=generator)
        outside = [token for token in range(VOCAB) if token not in ids]
        logits[:, outside] = -torch.inf
        return cls(logits.log_softmax(-1))

    def logprobs(self, prefix_BK: torch.Tensor) -> torch.Tensor:
        start = sum(VOCAB**n for n in range(prefix_BK.shape[1]))
        weights = VOCAB ** torch.arange(prefix_BK.shape[1] - 1, -1, -1)
        return self.table[start + (prefix_BK * weights).sum(1)]

    def sequences(self) -> np.ndarray:
        """Probability of each sequence of LENGTH tokens, in lexical order."""
        whole = torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))
        steps = [self.logprobs(whole[:, :n]).gather(1, whole[:, n, None]) for n in range(LENGTH)]
        return torch.cat(steps, 1).double().sum(1).exp().numpy()


TARGET = Model.random(0, sharpness=1.0, ids=list(range(VOCAB)))


def drafted(mode: str, k: int, batch: int) -> tuple[Drafts, torch.Tensor]:
    """Drafts of `k` tokens for every request, and the target's log-probs at their positions."""
    ids = [1, 3] if mode == "part of it" else list(range(VOCAB))
    model = Model.random(1, sharpness=1.0, ids=ids)
    tokens_BK = torch.empty(batch, 0, dtype=torch.int64)
    draft_probs, target = [], []
    for _ in range(k):
        logprobs_BV = model.logprobs(tokens_BK)
        target.append(TARGET.logprobs(tokens_BK))
        next_B = logprobs_BV.argmax(-1) if mode == "greedy drafts" else draw(logprobs_BV)
        draft_probs.append(logprobs_BV.exp()[:, ids])
        tokens_BK = torch.cat([tokens_BK, next_B[:, None]], 1)
    target.append(TARGET.logprobs(tokens_BK))
    probs_TD = torch.stack(draft_probs, 1).flatten(0, 1)
    drafts = Drafts(
        ids_T=tokens_BK.flatten(),
        counts=[k] * batch,
        probs_TD=None if mode == "greedy drafts" else probs_TD,
        vocabulary_D=torch.tensor(ids) if mode == "part of it" else None,
    )
    return drafts, torch.stack(target, 1).flatten(0, 1)


@cache
def many(mode: str, k: int) -> tuple[Drafts, torch.Tensor]:
    """Drafts for SAMPLES requests, the same for each test: drawing them takes half of its time."""
    torch.manual_seed(1)
    return drafted(mode, k, SAMPLES)


def completed(verified: Verified) -> torch.Tensor:
    """The first LENGTH tokens; what verification did not give is drawn from the target."""
    tokens_BK = verified.tokens_BK[:, :LENGTH].clone()
    for n in range(LENGTH):
        open_R = (tokens_BK[:, n] == NO_TOKEN).nonzero()[:, 0]
        tokens_BK[open_R, n] = draw(TARGET.logprobs(tokens_BK[open_R, :n]))
    return tokens_BK


def p_value(tokens_BK: torch.Tensor) -> float:
    weights = VOCAB ** torch.arange(LENGTH - 1, -1, -1)
    observed = torch.bincount((tokens_BK * weights).sum(1), minlength=VOCAB**LENGTH).numpy()
    expected = len(tokens_BK) * TARGET.sequences()
    assert expected.min() > 5
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


@pytest.mark.slow
@pytest.mark.parametrize("block", [False, True], ids=["standard", "block"])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_kept_and_drawn_follows_the_targets_distribution(mode: str, block: bool) -> None:
    drafts, logprobs_NV = many(mode, LENGTH - 1)
    torch.manual_seed(2)
    verified = verify(logprobs_NV, drafts, draw, block=block)
    assert p_value(completed(verified)) > 1e-4
    kept_B = (verified.tokens_BK != NO_TOKEN).sum(1) - 1
    assert kept_B.double().mean() > 0.3


def test_the_test_itself_finds_a_verification_that_accepts_too_much() -> None:
    drafts, logprobs_NV = many("whole vocabulary", LENGTH - 1)
    torch.manual_seed(2)
    assert drafts.probs_TD is not None
    modest = Drafts(drafts.ids_T, drafts.counts, drafts.probs_TD * 0.9)
    assert p_value(completed(verify(logprobs_NV, modest, draw))) < 1e-6


@pytest.mark.parametrize("mode", MODES[1:])
def test_block_verification_accepts_more_of_the_same_drafts(mode: str) -> None:
    torch.manual_seed(2)
    drafts, logprobs_NV = drafted(mode, LENGTH, SAMPLES)
    kept = [
        (verify(logprobs_NV, drafts, draw, block=block).tokens_BK != NO_TOKEN).sum(1).double()
        for block in (False, True)
    ]
    gain_B = kept[1] - kept[0]
    error = float(gain_B.std()) / SAMPLES**0.5
    assert norm.sf(float(gain_B.mean()) / error) < 1e-3


def test_block_verification_of_one_token_is_the_standard_one() -> None:
    drafts, logprobs_NV = drafted("whole vocabulary", 1, 1000)
    torch.manual_seed(3)
    standard = verify(logprobs_NV, drafts, draw)
    torch.manual_seed(3)
    block = verify(logprobs_NV, drafts, draw, block=True)
    assert torch.equal(standard.tokens_BK, block.tokens_BK)


@pytest.mark.parametrize("block", [False, True], ids=["standard", "block"])
def test_requests_with_padded_short_and_no_drafts_share_a_batch(block: bool) -> None:
    """The second one's drafts end at its padding; what is behind is not looked at."""
    certain = [2, 1, 0, 3, 2, 1, 0]  # the target's token at each row
    logprobs_NV = torch.full((7, VOCAB), -torch.inf)
    logprobs_NV[range(7), certain] = 0.0
    ids_T = torch.tensor([2, 0, 3, NO_TOKEN])
    probs_TD = torch.full((4, VOCAB), 0.25)
    for known in (None, probs_TD):
        drafts = Drafts(ids_T, [2, 2, 0], known)
        verified = verify(logprobs_NV, drafts, draw, block=block)
        wanted = [[2, 1, NO_TOKEN], [3, 2, NO_TOKEN], [0, NO_TOKEN, NO_TOKEN]]
        assert verified.tokens_BK.tolist() == wanted
        there = verified.tokens_BK != NO_TOKEN
        assert (verified.logprobs_BK[there] == 0).all()


def test_greedy_requests_take_the_most_likely_token_beside_sampled_ones() -> None:
    torch.manual_seed(4)
    drafts, logprobs_NV = drafted("whole vocabulary", LENGTH, 1000)
    greedy_B = torch.arange(1000) % 2 == 0
    tokens_BK = verify(logprobs_NV, drafts, draw, greedy_B).tokens_BK[greedy_B]
    for n in range(LENGTH):
        there_R = (tokens_BK[:, n] != NO_TOKEN).nonzero()[:, 0]
        best = TARGET.logprobs(tokens_BK[there_R, :n]).argmax(-1)
        assert torch.equal(tokens_BK[there_R, n], best)


def test_a_residual_of_nothing_draws_from_the_target() -> None:
    """The draft is the target, rejected by a draw that rounding alone allows."""
    logprobs_NV = torch.tensor([[0.5, 0.5, 0.0, 0.0]] * 2).log()
    probs_TD = torch.tensor([[0.6, 0.6, 0.0, 0.0]])
    drafts = Drafts(torch.tensor([0]), [1], probs_TD)
    torch.manual_seed(0)
    firsts = [int(verify(logprobs_NV, drafts, draw).tokens_BK[0, 0]) for _ in range(200)]
    assert set(firsts) == {0, 1}


@pytest.mark.parametrize("width", [3, CHUNK, CHUNK + 1, 1000])
def test_tokens_are_drawn_by_their_probability(width: int) -> None:
    torch.manual_seed(width)
    scores_V = torch.randn(width).masked_fill(torch.rand(width) < 0.3, -torch.inf)
    scores_V[width // 2] = 0.0
    drawn = draw((scores_V - 3).expand(20_000, -1))
    observed = torch.bincount(drawn, minlength=width).numpy()
    expected = len(drawn) * scores_V.double().softmax(-1).numpy()
    assert not observed[expected == 0].any()
    there = expected > 0
    statistic = ((observed[there] - expected[there]) ** 2 / expected[there]).sum()
    assert chi2.sf(statistic, there.sum() - 1) > 1e-4
