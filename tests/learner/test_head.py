"""The head's gradients against autograd through all logits at once."""

import pytest
import torch
from torch import Tensor

from specrl.learner.head import HeadSettings, backward_through_head

VOCAB, HIDDEN, TOKENS = 300, 16, 70


def inputs(scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weights, targets and slopes; half of the targets are the likeliest token."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(TOKENS, HIDDEN) * scale, torch.randn(VOCAB, HIDDEN)
    targets = torch.randint(VOCAB, (TOKENS,))
    targets[::2] = (hidden @ weight.t()).argmax(-1)[::2]
    return hidden, weight, targets, torch.randn(TOKENS)


def reference(
    hidden: Tensor, weight: Tensor, targets: Tensor, slopes: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    hidden, weight = (x.double().requires_grad_() for x in (hidden, weight))
    logprobs = (hidden @ weight.t() / temperature).log_softmax(-1)
    (logprobs.gather(1, targets[:, None])[:, 0] * slopes).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return hidden.grad, weight.grad


def gradients(
    hidden: Tensor, weight: Tensor, targets: Tensor, slopes: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    settings = HeadSettings(temperature, top_p=1.0, chunk_tokens=32)
    leaf, grad_VH = hidden.clone().requires_grad_(), torch.zeros(VOCAB, HIDDEN)
    backward_through_head(
        leaf * 1, weight, grad_VH, targets, settings, lambda logprobs, rows: logprobs @ slopes[rows]
    )
    assert leaf.grad is not None
    return leaf.grad, grad_VH


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_gradients_are_those_of_the_whole_softmax(temperature: float, scale: float) -> None:
    given = inputs(scale)
    for ours, right in zip(
        gradients(*given, temperature), reference(*given, temperature), strict=True
    ):
        torch.testing.assert_close(ours.double(), right, rtol=1e-4, atol=1e-4 * float(right.std()))


def test_bf16_keeps_the_gradient_of_a_token_that_is_nearly_certain() -> None:
    hidden, weight, _, slopes = inputs(4.0)
    hidden, weight = hidden.bfloat16(), weight.bfloat16()
    logits = hidden @ weight.t()
    targets = logits.argmax(-1)
    probabilities = logits.double().softmax(-1)
    sure = (probabilities.amax(-1) > 0.99) & (probabilities.amax(-1) < 0.9999)
    assert sure.any()
    one_hot = torch.nn.functional.one_hot(targets, VOCAB)
    right = ((one_hot - probabilities) * slopes[:, None]) @ weight.double()
    ours, _ = gradients(hidden, weight, targets, slopes, 1.0)
    error = (ours.double() - right)[sure].norm(dim=1) / right[sure].norm(dim=1)
    assert error.max() < 0.02
