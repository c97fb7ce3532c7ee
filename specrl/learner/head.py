"""Log-probs of response tokens from hidden states, never with all logits in memory.

Only response tokens go through the head, a chunk at a time, with logits in the model's dtype;
the fp32 work runs over a few rows at a time. In training the loss of a chunk is differentiated at
once, from the powers that its softmax left, so head and exponentials run once.

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
        parts.append(_softmax(logits_CV, targets_R[rows], settings, with_nucleus).statistics())
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
        softmax = _softmax(logits_CV, targets_R[rows], settings, with_nucleus, powers_CV=logits_CV)
        statistics = softmax.statistics()
        chunk_loss, slope_C = _differentiate(statistics.logprobs_R, rows, loss_of)
        loss += chunk_loss
        parts.append(statistics)
        scale_C1 = _powers_to_gradient(logits_CV, softmax, slope_C, settings.temperature)
        torch.mm(logits_CV, weight, out=grad_RH[rows]).mul_(scale_C1)
        scaled_CH = (hidden[rows] * scale_C1).to(hidden.dtype)
        _accumulate(weight_grad_VH, torch.mm(logits_CV.t(), scaled_CH, out=buffer_VH))
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


@dataclass(frozen=True)
class _Softmax:
    """Of the logits of a chunk at the temperature; `sum_C` is that of exp(logit - top).

    `column_C` are the targets' columns on this rank, where `mine_C` says that they are its own.
    """

    column_C: Tensor
    mine_C: Tensor
    target_C: Tensor
    top_C: Tensor
    sum_C: Tensor
    entropy_C: Tensor
    nucleus: Nucleus | None

    def statistics(self) -> TokenStatistics:
        log_sum_C = self.sum_C.log() + self.top_C
        everything = Nucleus(torch.full_like(log_sum_C, -torch.inf), log_sum_C)
        return TokenStatistics(
            self.target_C - log_sum_C, self.entropy_C, log_sum_C, self.nucleus or everything
        )


def _softmax(
    logits_CV: Tensor,
    targets_C: Tensor,
    settings: HeadSettings,
    with_nucleus: bool,
    powers_CV: Tensor | None = None,
) -> _Softmax:
    """Over the vocabulary rows of all ranks; `powers_CV` takes exp(logit - top) of this rank's.

    It may be the logits' own memory.
    """
    last = logits_CV.shape[1] - 1
    column_C = targets_C - settings.vocab_start
    mine_C = (column_C >= 0) & (column_C <= last)
    column_C = column_C.clamp(0, last)
    target_C = logits_CV.gather(1, column_C[:, None]).squeeze(1).float()
    target_C = (target_C / settings.temperature) * mine_C
    top_C = logits_CV.amax(dim=1).float() / settings.temperature
    if settings.group is not None:
        dist.all_reduce(top_C, op=dist.ReduceOp.MAX, group=settings.group)
    sum_C, moment_C = torch.empty_like(top_C), torch.empty_like(top_C)
    nuclei = []
    for part in _chunks(len(logits_CV), FP32_ROWS):
        scaled = _scaled(logits_CV[part], settings.temperature)
        if with_nucleus and settings.top_p < 1.0:
            nuclei.append(nucleus(_whole(scaled, settings), settings.top_p))
        scaled.sub_(top_C[part, None])
        powers = scaled.exp()
        sum_C[part] = powers.sum(dim=1)
        moment_C[part] = torch.linalg.vecdot(powers, scaled)
        if powers_CV is not None:
            powers_CV[part] = powers
    if settings.group is not None:
        sums = torch.stack([sum_C, moment_C, target_C])
        dist.all_reduce(sums, group=settings.group)
        sum_C, moment_C, target_C = sums
    entropy_C = sum_C.log() - moment_C / sum_C
    kept = joined(nuclei) if nuclei else None
    return _Softmax(column_C, mine_C, target_C, top_C, sum_C, entropy_C, kept)


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


def _powers_to_gradient(
    powers_CV: Tensor, softmax: _Softmax, slope_C: Tensor, temperature: float
) -> Tensor:
    """Makes d loss / d logits of powers, up to a factor of each row, which is returned [C, 1].

    slope * (one-hot - probability) / temperature = factor * (power - sum * one-hot).
    """
    mine_C = softmax.mine_C
    target_factor_C = (softmax.target_C - softmax.top_C).exp_().sub_(softmax.sum_C)
    powers_CV[mine_C, softmax.column_C[mine_C]] = target_factor_C[mine_C].to(powers_CV.dtype)
    return (slope_C / softmax.sum_C).div_(-temperature)[:, None]
