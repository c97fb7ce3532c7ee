"""Does the engine sample the policy's distribution, with and without speculation?

Every continuation of 4 tokens of a vocabulary of 8 is enumerated by an independent forward and
compared with the engine's samples (Pearson's chi-square, bins merged to an expectation of 5).
"""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollout_engines import NGRAM, PROBABILISTIC_DRAFT, ToyEngine, start_toy
from rollout_toys import VOCAB, constrained_logprobs, toy
from scipy.stats import chi2

from specrl.rollout import patches
from specrl.rollout.settings import EngineSettings
from specrl.rollout.worker import EngineWorker
from specrl.types import Prompt, Sampling

pytestmark = pytest.mark.slow

LENGTH = 4
SAMPLES = 20_000
PROMPT = Prompt(id="repeats", text="", token_ids=(1, 2, 3, 1, 2, 3, 1, 2), reference={})
SAMPLINGS = [(1.0, 1.0), (0.7, 0.9)]


@pytest.mark.parametrize(("temperature", "top_p"), SAMPLINGS)
def test_samples_follow_the_policys_distribution(
    toy_engine: ToyEngine, temperature: float, top_p: float
) -> None:
    p_value, accepted = p_value_of(toy_engine, temperature, top_p)
    assert p_value > 1e-4
    assert (accepted > SAMPLES // 20) == toy_engine.drafts


def test_greedy_drafts_keep_the_policys_distribution_too(tied_engine: ToyEngine) -> None:
    p_value, accepted = p_value_of(tied_engine, temperature=0.7, top_p=0.9)
    assert p_value > 1e-4
    assert accepted > SAMPLES // 20


class StockWorker(EngineWorker):
    """An engine on vLLM's CPU build as it comes, which does not refuse to speculate."""

    def __init__(self, settings: EngineSettings) -> None:
        patches.install = lambda: None
        super().__init__(settings)

    def _refuse_wrong_sampling(self) -> None: ...


@pytest.mark.parametrize("speculation", [NGRAM, PROBABILISTIC_DRAFT], ids=["ngram", "draft_model"])
def test_the_stock_cpu_build_samples_wrongly_and_still_needs_the_patch(
    tmp_path: Path, speculation: dict[str, Any]
) -> None:
    stock = start_toy(tmp_path, speculation, target=f"{__name__}:StockWorker")
    try:
        p_value, _ = p_value_of(stock, temperature=0.7, top_p=1.0)
    finally:
        stock.actor.kill()
    assert p_value < 1e-12, (
        "vLLM samples right without specrl.rollout.patches.cpu_sampler: drop its verification"
    )


def p_value_of(toy_engine: ToyEngine, temperature: float, top_p: float) -> tuple[float, int]:
    """The chi-square test's p-value, and how many draft tokens were accepted on the way."""
    sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=LENGTH, ignore_eos=True)
    rollouts = toy_engine.engine.generate([PROMPT], SAMPLES, sampling)
    counts = Counter(rollout.token_ids for rollout in rollouts)
    expected = SAMPLES * continuation_probabilities(toy_engine.model, temperature, top_p)
    observed = np.array([counts[c] for c in itertools.product(range(VOCAB), repeat=LENGTH)])
    assert observed.sum() == SAMPLES
    accepted = sum(sum(r.spec.num_accepted_tokens) for r in rollouts if r.spec is not None)
    return chi_square(observed, expected), accepted


def continuation_probabilities(model: object, temperature: float, top_p: float) -> np.ndarray:
    continuations_BT = torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))
    prompt_BT = torch.tensor([PROMPT.token_ids]).expand(len(continuations_BT), -1)
    ids_BT = torch.cat([prompt_BT, continuations_BT], dim=1)
    logprobs_BTV = constrained_logprobs(model, ids_BT, temperature, top_p)[:, -LENGTH - 1 : -1]
    chosen_BT = logprobs_BTV.gather(-1, continuations_BT[..., None])[..., 0]
    return chosen_BT.sum(-1).exp().numpy()


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    """p-value; 0 when something impossible was observed."""
    if observed[expected == 0].any():
        return 0.0
    large = expected >= 5
    bins = [(observed[large], expected[large])]
    rest = expected[~large].sum()
    if rest >= 5:
        bins.append((observed[~large].sum(keepdims=True), np.array([rest])))
    statistic = sum(float(((o - e) ** 2 / e).sum()) for o, e in bins)
    return float(chi2.sf(statistic, sum(len(o) for o, _ in bins) - 1))


def test_the_chi_square_test_itself_accepts_the_truth_and_rejects_a_small_bias() -> None:
    model = toy(seed=0)
    probabilities = continuation_probabilities(model, 1.0, 1.0)
    assert probabilities.sum() == pytest.approx(1.0)
    draw = np.random.default_rng(0).multinomial
    assert chi_square(draw(SAMPLES, probabilities), SAMPLES * probabilities) > 1e-4
    warmer = continuation_probabilities(model, 1.1, 1.0)
    assert chi_square(draw(SAMPLES, warmer), SAMPLES * probabilities) < 1e-6
