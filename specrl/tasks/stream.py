"""The order of training questions: endless, shuffled anew each epoch, pure in the cursor."""

from functools import lru_cache
from random import Random


def shuffled_indices(size: int, seed: int, cursor: int, count: int) -> list[int]:
    """Indices into `size` questions at stream positions cursor .. cursor + count - 1.

    Every run of `size` positions from a multiple of `size` on holds each index once, in an order
    of its own that depends only on seed and epoch.
    """
    places = [divmod(position, size) for position in range(cursor, cursor + count)]
    return [_epoch_order(size, seed, epoch)[place] for epoch, place in places]


@lru_cache(maxsize=4)
def _epoch_order(size: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(size))
    Random(f"{seed}/{epoch}").shuffle(order)
    return tuple(order)
