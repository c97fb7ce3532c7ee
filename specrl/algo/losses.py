"""The GRPO policy loss on response tokens, with denominators fixed beforehand.

Legend: R response tokens of any part of the batch, packed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PolicyTokens:
    """What the loss knows of each response token, all [R] fp32.

    `weight_R` holds the global denominator (`token_weights`), so sums over microbatches and
    data-parallel ranks give the loss of the whole batch. `behaviour_R` are the policy's log-probs
    before the update (None: those the loss is given), `rollout_R` the engine's, `reference_R` the
    frozen policy's (None: no KL).
    """

    advantage_R: Tensor
    weight_R: Tensor
    behaviour_R: Tensor | None
    rollout_R: Tensor
    reference_R: Tensor | None = None

    def part(self, rows: slice) -> "PolicyTokens":
        """The tokens of `rows`."""
        behaviour_R, reference_R = self.behaviour_R, self.reference_R
        return PolicyTokens(
            self.advantage_R[rows],
            self.weight_R[rows],
            None if behaviour_R is None else behaviour_R[rows],
            self.rollout_R[rows],
            None if reference_R is None else reference_R[rows],
        )


@dataclass(frozen=True)
class Objective:
    """The constants of the loss; see `specrl.config.algorithm.AlgorithmConfig`."""

    clip_low: float
    clip_high: float
    kl_coef: float = 0.0
    truncated_is: float | None = None


def token_weights(
    lengths: list[int], aggregation: str, total_tokens: int, total_sequences: int
) -> list[float]:
    """One weight per response of the given length, to be used for each of its tokens.

    "token": 1 / all response tokens of the batch (arXiv:2503.14476). "sequence": the mean over
    responses of their token means (arXiv:2402.03300). Empty responses count as sequences.
    """
    assert aggregation in ("token", "sequence"), aggregation
    if aggregation == "token":
        return [1.0 / total_tokens] * len(lengths)
    return [1.0 / (total_sequences * max(length, 1)) for length in lengths]


def importance_weights(behaviour_R: Tensor, rollout_R: Tensor, cap: float | None) -> Tensor:
    """min(exp(policy - engine log-prob), cap) per token, no gradient; ones when cap is None."""
    if cap is None:
        return torch.ones_like(behaviour_R)
    return torch.exp(behaviour_R - rollout_R).clamp(max=cap).detach()


def kl_k3(logprobs_R: Tensor, reference_R: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference): exp(d) - d - 1, d = reference - policy."""
    difference_R = reference_R - logprobs_R
    return torch.exp(difference_R) - difference_R - 1.0


def grpo_loss(
    logprobs_R: Tensor, tokens: PolicyTokens, objective: Objective
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weighted sum of the clipped policy loss and the KL term, and metric sums over the tokens.

    The ratio is against `behaviour_R` and clipped to [1 - clip_low, 1 + clip_high]; the importance
    weight multiplies the policy term only. Sums (no gradient): tokens, ratio, clipped, importance,
    difference (|engine - policy log-prob|), kl (with a reference).
    """
    behaviour_R = logprobs_R.detach() if tokens.behaviour_R is None else tokens.behaviour_R
    ratio_R = torch.exp(logprobs_R - behaviour_R)
    clipped_R = ratio_R.clamp(1.0 - objective.clip_low, 1.0 + objective.clip_high)
    plain_R = ratio_R * tokens.advantage_R
    bounded_R = clipped_R * tokens.advantage_R
    importance_R = importance_weights(behaviour_R, tokens.rollout_R, objective.truncated_is)
    loss_R = -importance_R * torch.minimum(plain_R, bounded_R)
    sums = {
        "tokens": torch.tensor(float(len(logprobs_R)), device=logprobs_R.device),
        "ratio": ratio_R.detach().sum(),
        "clipped": (bounded_R < plain_R).sum().float(),
        "importance": importance_R.sum(),
        "difference": (tokens.rollout_R - behaviour_R).abs().sum(),
        "largest_difference": (tokens.rollout_R - behaviour_R).abs().amax(),
    }
    if tokens.reference_R is not None:
        kl_R = kl_k3(logprobs_R, tokens.reference_R)
        loss_R = loss_R + objective.kl_coef * kl_R
        sums["kl"] = kl_R.detach().sum()
    return (loss_R * tokens.weight_R).sum(), sums
