"""Which of the policy's layers an EAGLE-3 draft sees, by Hugging Face index."""

from collections.abc import Sequence

from specrl.errors import UserError

FEWEST_LAYERS = 3


def aux_layers(asked: Sequence[int], num_layers: int) -> tuple[int, int, int]:
    """Three layers in ascending order; layer L is the residual stream after L layers.

    Empty `asked` gives vLLM's default 2, L/2, L-3, spread out where those would collide. Raises
    `UserError` for a model with too few layers, or a layer that the engine cannot tap.
    """
    if num_layers < FEWEST_LAYERS:
        raise UserError(
            f"drafter=eagle3 needs a policy of at least {FEWEST_LAYERS} layers, this one has "
            f"{num_layers}; use another model, or drafter=none"
        )
    if not asked:
        usual = (2, num_layers // 2, num_layers - 3)
        return usual if usual[0] < usual[1] < usual[2] else (0, num_layers // 2, num_layers - 1)
    beyond = [layer for layer in asked if not 0 <= layer < num_layers]
    if beyond:
        raise UserError(
            f"drafter.aux_layers={list(asked)}: the policy has no layer {beyond[0]} to tap; "
            f"use three of 0..{num_layers - 1}"
        )
    low, middle, high = asked
    return low, middle, high
