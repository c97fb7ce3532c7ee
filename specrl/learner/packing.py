"""Samples of different lengths to packed microbatches, without padding tokens in the trunk.

Samples of one prompt that share a microbatch share its prompt tokens: the trunk sees the prompt
once and every response attends to it.

Legend: T packed tokens, R response tokens, S padded attention slots.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
MIN_FILL = 0.7  # shortest over longest row of one padded attention block


@dataclass(frozen=True)
class TokenSample:
    """Prompt and response of one rollout."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """Responses that attend together: rows padded to `width`, each with the row of its prompt."""

    prompt_rows: Int
    lengths: Int
    width: int


@dataclass(frozen=True)
class PackedBatch:
    """One microbatch: all prompts first, then all responses.

    `samples` are indices into the list that was packed; response tokens of sample i fill
    `slices[i]` of the R response tokens. `head_rows_R` are the packed positions whose hidden
    states predict `targets_R`. Attention works on S padded slots: `slots_S` names the packed token
    of each (0 where `padding_S`), `places_T` the slot of each packed token. Slots are first
    the prompts, len(prompt_lengths) rows of `prompt_width`, then the blocks.
    """

    samples: tuple[int, ...]
    slices: tuple[slice, ...]
    token_ids_T: Int
    positions_T: Int
    head_rows_R: Int
    targets_R: Int
    prompt_lengths: Int
    prompt_width: int
    blocks: tuple[Block, ...]
    slots_S: Int
    padding_S: NDArray[np.bool_]
    places_T: Int


def microbatches(samples: Sequence[TokenSample], max_tokens: int) -> list[PackedBatch]:
    """All samples, packed into batches of at most `max_tokens` (a longer sample gets its own).

    A sample with an empty response has nothing to predict and is in no batch.
    """
    return [_pack(samples, indices) for indices in _fill(samples, max_tokens)]


def sample_rows(batch: PackedBatch, number: int) -> tuple[Int, Int]:
    """Packed positions of the prompt and of the response of `batch.samples[number]`."""
    own = batch.slices[number]
    ends = np.cumsum(batch.prompt_lengths)
    stop = int(batch.head_rows_R[own.start]) + 1
    length = int(batch.prompt_lengths[np.searchsorted(ends, stop)])
    return np.arange(stop - length, stop), np.arange(own.start, own.stop) + ends[-1]


def _fill(samples: Sequence[TokenSample], max_tokens: int) -> Iterator[list[int]]:
    """Similar lengths and equal prompts next to each other, cut where a batch is full."""
    longest: dict[tuple[int, ...], int] = {}
    for sample in samples:
        size = len(sample.prompt_ids) + len(sample.response_ids)
        longest[sample.prompt_ids] = max(size, longest.get(sample.prompt_ids, 0))

    def order(index: int) -> tuple[int, tuple[int, ...], int]:
        prompt = samples[index].prompt_ids
        return longest[prompt], prompt, len(samples[index].response_ids)

    batch: list[int] = []
    prompts: set[tuple[int, ...]] = set()
    used = 0
    filled = [index for index, sample in enumerate(samples) if sample.response_ids]
    for index in sorted(filled, key=order):
        sample = samples[index]
        new_prompt = 0 if sample.prompt_ids in prompts else len(sample.prompt_ids)
        if batch and used + new_prompt + len(sample.response_ids) > max_tokens:
            yield batch
            batch, prompts, used, new_prompt = [], set(), 0, len(sample.prompt_ids)
        batch.append(index)
        prompts.add(sample.prompt_ids)
        used += new_prompt + len(sample.response_ids)
    if batch:
        yield batch


def _pack(samples: Sequence[TokenSample], indices: list[int]) -> PackedBatch:
    order = sorted(indices, key=lambda index: len(samples[index].response_ids))
    prompts = sorted({samples[index].prompt_ids for index in order}, key=len)
    row_of = {prompt: row for row, prompt in enumerate(prompts)}
    rows = np.array([row_of[samples[index].prompt_ids] for index in order])
    prompt_lengths = np.array([len(prompt) for prompt in prompts])
    response_lengths = np.array([len(samples[index].response_ids) for index in order])
    prompt_ends = np.cumsum(prompt_lengths)
    starts = prompt_ends[-1] + np.cumsum(response_lengths) - response_lengths
    texts = [*prompts, *(samples[index].response_ids for index in order)]
    positions = [np.arange(length) for length in prompt_lengths]
    positions += [
        np.arange(length) + prompt_lengths[row]
        for row, length in zip(rows, response_lengths, strict=True)
    ]
    blocks = tuple(_blocks(rows, response_lengths))
    slots_S, padding_S, places_T = _slots(prompt_lengths, blocks)
    return PackedBatch(
        samples=tuple(order),
        slices=tuple(_slices(response_lengths)),
        token_ids_T=np.concatenate([np.asarray(text, dtype=np.int64) for text in texts]),
        positions_T=np.concatenate(positions).astype(np.int64),
        head_rows_R=_head_rows(prompt_ends[rows] - 1, starts, response_lengths),
        targets_R=np.concatenate([np.asarray(t, dtype=np.int64) for t in texts[len(prompts) :]]),
        prompt_lengths=prompt_lengths,
        prompt_width=int(prompt_lengths.max()),
        blocks=blocks,
        slots_S=slots_S,
        padding_S=padding_S,
        places_T=places_T,
    )


def _slices(lengths: Int) -> Iterator[slice]:
    stop = 0
    for length in lengths:
        yield slice(stop, stop + int(length))
        stop += int(length)


def _head_rows(last_of_prompt: Int, starts: Int, lengths: Int) -> Int:
    """A response token is predicted by the token before it, the first one by the prompt's last."""
    parts = []
    for last, start, length in zip(last_of_prompt, starts, lengths, strict=True):
        parts.append([last, *range(start, start + length - 1)][:length])
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def _blocks(rows: Int, lengths: Int) -> Iterator[Block]:
    """Consecutive responses (sorted by length) while the shortest fills its row well enough."""
    stop = len(lengths)
    while stop > 0:
        width = int(lengths[stop - 1])
        start = int(np.searchsorted(lengths[:stop], MIN_FILL * width))
        yield Block(rows[start:stop], lengths[start:stop], width)
        stop = start


def _slots(prompt_lengths: Int, blocks: tuple[Block, ...]) -> tuple[Int, NDArray[np.bool_], Int]:
    valid = [_valid(prompt_lengths, int(prompt_lengths.max()))]
    valid += [_valid(block.lengths, block.width) for block in blocks]
    # Blocks run from long to short responses, packed tokens from short to long.
    sizes = [int(part.sum()) for part in valid]
    total = sum(sizes)
    firsts = [0, *(total - np.cumsum(sizes[1:]))]
    slots, places = [], np.empty(total, dtype=np.int64)
    offset = 0
    for part, first, size in zip(valid, firsts, sizes, strict=True):
        tokens = np.zeros(part.shape, dtype=np.int64)
        tokens[part] = np.arange(first, first + size)
        places[first : first + size] = offset + np.flatnonzero(part)
        slots.append(tokens.ravel())
        offset += part.size
    padding_S = ~np.concatenate([part.ravel() for part in valid])
    return np.concatenate(slots), padding_S, places


def _valid(lengths: Int, width: int) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = np.arange(width)[None, :] < lengths[:, None]
    return valid
