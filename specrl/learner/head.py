"""Log-probs of response tokens from hidden states, never with all logits in memory.

Only response tokens go through the head, a chunk at a time, with logits in the model's dtype;
the fp32 work runs over a few rows at a time. In training the loss of a chunk is differentiated at
once, while its logits are still there, so the head runs once.

Legend: R response tokens, C tokens of a chunk, V vocabulary rows of this rank, H hidden.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from specrl.algo.nucleus import Nucleus, joined, nucleus

FP32_ROWS = 32  # rows of fp32 logits at once: stays in cache on a CPU
CAST_ROWS = 1024  # rows of a gradient cast to fp32 at once: likewise
ChunkLoss = Callable[[Tensor, slice], Tensor]
"""(log-probs [C], their rows of R) to a scalar loss."""


@dataclass(frozen=True)
class HeadSettings:
    """`temperature` and `top_p` are those of the rollouts.

    `vocab_start` is this rank's first id; `group` its tensor-parallel group or None.
    """

    temperature: float
    top_p: float
    chunk_tokens: int
    vocab_start: int = 0
    group: dist.ProcessGroup | None = None


@dataclass(frozen=True)
class TokenStatistics:
    """fp32, at the temperature: log-prob of each target, entropy and log-sum-exp of its logits.

    Those are of the whole vocabulary, `nucleus` of what top_p leaves of it where that is asked for:
    on a CPU it takes longer than the logits.
    """

    logprobs_R: Tensor
    entropy_R: Tensor
    log_sum_R: Tensor
    nucleus: Nucleus


@torch.no_grad()
def token_logprobs(
    hidden_RH: Tensor,
    weight_VH: Tensor,
    targets_R: Tensor,
    settings: HeadSettings,
    with_nucleus: bool = False,
) -> TokenStatistics:
    """Of each target under the distribution of its hidden state."""
    parts = []
    for rows in _chunks(len(targets_R), settings.chunk_tokens):
        logits_CV = hidden_RH[rows] @ weight_VH.t()
        parts.append(_statistics(logits_CV, targets_R[rows], settings, with_nucleus))
    return _joined(parts)


def backward_through_head(
    hidden_RH: Tensor,
    weight_VH: Tensor,
    weight_grad_VH: Tensor,
    targets_R: Tensor,
    settings: HeadSettings,
    loss_of: ChunkLoss,
    with_nucleus: bool = False,
) -> tuple[Tensor, TokenStatistics]:
    """Adds the head's gradient to `weight_grad_VH` and carries on into the graph of `hidden_RH`.

    Returns the summed loss and what the same logits say of each target.
    """
    hidden, weight = hidden_RH.detach(), weight_VH.detach()
    grad_RH = torch.empty_like(hidden)
    loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
    # Reused by all chunks: the first touch of fresh pages costs as much as the softmax.
    buffer_CV = hidden.new_empty(min(settings.chunk_tokens, len(hidden)), len(weight))
    buffer_VH = torch.empty_like(weight)
    parts = []
    for rows in _chunks(len(targets_R), settings.chunk_tokens):
        logits_CV = torch.mm(hidden[rows], weight.t(), out=buffer_CV[: rows.stop - rows.start])
        statistics = _statistics(logits_CV, targets_R[rows], settings, with_nucleus)
        chunk_loss, slope_C = _differentiate(statistics.logprobs_R, rows, loss_of)
        loss += chunk_loss
        parts.append(statistics)
        _logits_to_gradient(logits_CV, statistics.log_sum_R, slope_C, targets_R[rows], settings)
        torch.mm(logits_CV, weight, out=grad_RH[rows])
        _accumulate(weight_grad_VH, torch.mm(logits_CV.t(), hidden[rows], out=buffer_VH))
    if settings.group is not None:
        dist.all_reduce(grad_RH, group=settings.group)
    torch.autograd.backward(hidden_RH, grad_RH)
    return loss, _joined(parts)


def _accumulate(total_VH: Tensor, part_VH: Tensor) -> None:
    """Adds a block of rows at a time: torch casts a whole operand of another dtype first."""
    for rows in _chunks(len(part_VH), CAST_ROWS):
        total_VH[rows].add_(part_VH[rows])


def _differentiate(logprobs_C: Tensor, rows: slice, loss_of: ChunkLoss) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf_C = logprobs_C.detach().requires_grad_()
        loss = loss_of(leaf_C, rows)
        (slope_C,) = torch.autograd.grad(loss, leaf_C)
    return loss.detach(), slope_C


def _chunks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """A fp32 copy of logits / temperature."""
    scaled = logits.to(torch.float32, copy=True)
    return scaled if temperature == 1.0 else scaled.div_(temperature)


def _joined(parts: Sequence[TokenStatistics]) -> TokenStatistics:
    return TokenStatistics(
        torch.cat([part.logprobs_R for part in parts]),
        torch.cat([part.entropy_R for part in parts]),
        torch.cat([part.log_sum_R for part in parts]),
        joined([part.nucleus for part in parts]),
    )


def _statistics(
    logits_CV: Tensor, targets_C: Tensor, settings: HeadSettings, with_nucleus: bool
) -> TokenStatistics:
    count, rows = logits_CV.shape
    local_C = targets_C - settings.vocab_start
    mine_C = (local_C >= 0) & (local_C < rows)
    target_C = logits_CV.gather(1, local_C.clamp(0, rows - 1)[:, None]).squeeze(1).float()
    target_C = (target_C / settings.temperature) * mine_C
    top_C, sum_C, moment_C = (torch.empty_like(target_C) for _ in range(3))
    nuclei = []
    for part in _chunks(count, FP32_ROWS):
        scaled = _scaled(logits_CV[part], settings.temperature)
        if with_nucleus and settings.top_p < 1.0:
            nuclei.append(nucleus(_whole(scaled, settings), settings.top_p))
        top_C[part] = scaled.amax(dim=1)
        scaled.sub_(top_C[part, None])
        powers = scaled.exp()
        sum_C[part] = powers.sum(dim=1)
        moment_C[part] = torch.linalg.vecdot(powers, scaled)
    if settings.group is not None:
        top_C, sum_C, moment_C, target_C = _combine(top_C, sum_C, moment_C, target_C, settings)
    log_sum_C = sum_C.log() + top_C
    everything = Nucleus(torch.full_like(log_sum_C, -torch.inf), log_sum_C)
    kept = joined(nuclei) if nuclei else everything
    return TokenStatistics(target_C - log_sum_C, sum_C.log() - moment_C / sum_C, log_sum_C, kept)


def _whole(scaled_CV: Tensor, settings: HeadSettings) -> Tensor:
    """Over the vocabulary rows of all ranks; -inf where a shard is shorter than others."""
    if settings.group is None:
        return scaled_CV
    width = torch.tensor(scaled_CV.shape[1], device=scaled_CV.device)
    dist.all_reduce(width, op=dist.ReduceOp.MAX, group=settings.group)
    missing = int(width) - scaled_CV.shape[1]
    shard_CV = torch.nn.functional.pad(scaled_CV, (0, missing), value=-torch.inf)
    shards = [torch.empty_like(shard_CV) for _ in range(dist.get_world_size(settings.group))]
    dist.all_gather(shards, shard_CV, group=settings.group)
    return torch.cat(shards, dim=1)


def _combine(
    top_C: Tensor, sum_C: Tensor, moment_C: Tensor, target_C: Tensor, settings: HeadSettings
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Statistics of this rank's vocabulary rows to those of all."""
    whole_C = top_C.clone()
    dist.all_reduce(whole_C, op=dist.ReduceOp.MAX, group=settings.group)
    shift_C = top_C - whole_C
    factor_C = shift_C.exp()
    sums = torch.stack([sum_C * factor_C, factor_C * (moment_C + shift_C * sum_C), target_C])
    dist.all_reduce(sums, group=settings.group)
    return whole_C, sums[0], sums[1], sums[2]


def _logits_to_gradient(
    logits_CV: Tensor,
    log_sum_C: Tensor,
    slope_C: Tensor,
    targets_C: Tensor,
    settings: HeadSettings,
) -> None:
    """Replaces logits by d loss / d logits: slope * (one-hot - probability) / temperature."""
    count, rows = logits_CV.shape
    slope_C = slope_C / settings.temperature
    for part in _chunks(count, FP32_ROWS):
        scaled = _scaled(logits_CV[part], settings.temperature)
        scaled.sub_(log_sum_C[part, None]).exp_().mul_(-slope_C[part, None])
        local = targets_C[part] - settings.vocab_start
        mine = (local >= 0) & (local < rows)
        scaled.scatter_add_(1, local.clamp(0, rows - 1)[:, None], (slope_C[part] * mine)[:, None])
        logits_CV[part] = scaled
