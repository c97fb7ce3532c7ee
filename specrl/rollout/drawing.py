"""Draws tokens from rows of log-probabilities, in one pass over the vocabulary.

Noise for every token of the vocabulary (the Gumbel trick) costs ten times as much on a CPU as what
is left of it here: one exponential per token, one uniform draw per row.

Legend: R rows, V vocabulary, C chunks of W tokens.
"""

import torch

CHUNK = 256


def draw(scores_RV: torch.Tensor) -> torch.Tensor:
    """One token per row, by the exponential of its score; a row of -inf gives any token.

    Scores are log-probabilities up to a constant per row, not far above 0. Uses torch's global
    random state.
    """
    masses_RV = scores_RV.exp()
    if short := -masses_RV.shape[1] % CHUNK:
        masses_RV = torch.nn.functional.pad(masses_RV, (0, short))
    masses_RCW = masses_RV.view(len(masses_RV), masses_RV.shape[1] // CHUNK, CHUNK)
    draws_R2 = torch.rand(len(masses_RV), 2, dtype=torch.float64)
    chunk_R = _inverse(masses_RCW.sum(-1), draws_R2[:, 0])
    token_R = _inverse(masses_RCW[torch.arange(len(chunk_R)), chunk_R], draws_R2[:, 1])
    return (chunk_R * CHUNK + token_R).clamp_(max=scores_RV.shape[1] - 1)


def _inverse(masses_RN: torch.Tensor, draws_R: torch.Tensor) -> torch.Tensor:
    """The entry of each row at which its cumulative mass passes the draw's share of the whole."""
    passed_RN = masses_RN.double().cumsum(-1)
    wanted_R1 = (draws_R * passed_RN[:, -1])[:, None]
    return torch.searchsorted(passed_RN, wanted_R1, right=True)[:, 0].clamp_(
        max=masses_RN.shape[1] - 1
    )
