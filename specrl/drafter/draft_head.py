"""The draft's output layer and its loss, never with all logits in memory.

Of a chunk of predicted tokens the policy's logits are computed once and the draft's for all its
steps; the loss is differentiated at once, while they are there.

Legend: S draft steps, R rows, C tokens that are predicted, H hidden, D draft vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specrl.algo.draft_losses import DraftFit, Teacher, fit_and_gradient_
from specrl.drafter.ttt import Targets

CHUNK_ELEMENTS = 2**23  # draft logits at once
CHUNK_TOKENS = 128  # predicted tokens at once, however large the vocabulary


@dataclass(frozen=True)
class LossSettings:
    """`loss` of `algo.draft_losses`; `greedy`: acceptance is that of the draft's best token."""

    loss: str
    greedy: bool


@torch.no_grad()
def fit(
    normed_SRH: Tensor, weight_DH: Tensor, targets: Targets, settings: LossSettings
) -> DraftFit:
    """Fit of each step and token; 0 where the draft would start before the response."""
    parts = [
        _chunk(normed_SRH, weight_DH, chunk, settings, None)[0]
        for chunk in _chunks(targets, len(normed_SRH), weight_DH)
    ]
    return _joined(parts)


@torch.no_grad()
def fit_backward(
    normed_SRH: Tensor,
    weight_DH: Tensor,
    weight_grad_DH: Tensor,
    targets: Targets,
    settings: LossSettings,
    step_weights_S: Tensor,
) -> tuple[DraftFit, Tensor]:
    """Also the gradient [S, R, H] of sum(step weight * loss); adds the weight's to its own."""
    grad = torch.zeros(normed_SRH[..., 0].numel() + 1, normed_SRH.shape[-1]).to(normed_SRH)
    parts = []
    for chunk in _chunks(targets, len(normed_SRH), weight_DH):
        part, slots_SC, hidden, slope = _chunk(
            normed_SRH, weight_DH, chunk, settings, step_weights_S
        )
        grad[slots_SC.flatten()] = slope @ weight_DH
        weight_grad_DH.add_(slope.t() @ hidden)
        parts.append(part)
    return _joined(parts), grad[:-1].view_as(normed_SRH)


def by_row(values_SC: Tensor, targets: Targets, num_rows: int) -> Tensor:
    """[S, C] values of steps and tokens to [S, R]: of the draft that starts at each row."""
    steps = len(values_SC)
    flat = torch.zeros(steps * num_rows + 1, device=values_SC.device)
    flat[targets.slots(steps, num_rows).flatten()] = values_SC.flatten()
    return flat[:-1].view(steps, num_rows)


def _chunk(
    normed_SRH: Tensor,
    weight_DH: Tensor,
    targets: Targets,
    settings: LossSettings,
    step_weights_S: Tensor | None,
) -> tuple[DraftFit, Tensor, Tensor, Tensor]:
    """Fit, places, gathered hidden [S * C, H] and logits, which are gradients with weights."""
    steps, num_rows, _ = normed_SRH.shape
    slots_SC = targets.slots(steps, num_rows)
    exists_SC = slots_SC < steps * num_rows
    hidden = normed_SRH.flatten(0, 1).index_select(0, (slots_SC * exists_SC).flatten())
    logits = hidden @ weight_DH.t()
    teacher = Teacher(
        torch.cat([final @ head.t() for final, head in targets.parts]),
        targets.nucleus,
        targets.tokens_C,
        targets.temperature,
    )
    weight_SC = None if step_weights_S is None else step_weights_S[:, None] * exists_SC
    whole = fit_and_gradient_(
        logits.view(steps, -1, len(weight_DH)), teacher, weight_SC, settings.loss, settings.greedy
    )
    known = DraftFit(
        whole.loss_SC * exists_SC,
        whole.accept_SC * exists_SC,
        whole.kept_SC * exists_SC,
        whole.reachable_C,
    )
    return known, slots_SC, hidden, logits


def _chunks(targets: Targets, steps: int, weight_DH: Tensor) -> Iterator[Targets]:
    size = max(CHUNK_TOKENS, CHUNK_ELEMENTS // (steps * len(weight_DH)))
    count = len(targets.rows_C)
    for start in range(0, count, size):
        span = slice(start, min(start + size, count))
        yield Targets(
            targets.rows_C[span],
            targets.firsts_C[span],
            tuple(_parts(targets, span)),
            targets.nucleus.of(span),
            targets.tokens_C[span],
            targets.temperature,
        )


def _parts(targets: Targets, span: slice) -> Iterator[tuple[Tensor, Tensor]]:
    first = 0
    for final, head in targets.parts:
        piece = final[max(span.start - first, 0) : max(span.stop - first, 0)]
        first += len(final)
        if len(piece):
            yield piece, head


def _joined(parts: list[DraftFit]) -> DraftFit:
    return DraftFit(
        torch.cat([part.loss_SC for part in parts], dim=1),
        torch.cat([part.accept_SC for part in parts], dim=1),
        torch.cat([part.kept_SC for part in parts], dim=1),
        torch.cat([part.reachable_C for part in parts]),
    )
