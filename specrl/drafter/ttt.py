"""Training-time test (arXiv:2503.01840): a draft unrolled along responses as the engine unrolls it.

Rows are response tokens. Row r of a response starts a draft whose last known token is response
token r: its slot at step s is P - 1 + r + s, which pairs the embedding of response token r + s with
the policy's states (s = 0) or the row's own output of the step before, and predicts response token
r + 1 + s. It attends to the first-step keys of all slots up to its own first one, and to its own
key of each later step: what the engine's cache holds at that moment.

Legend: R response tokens of all samples, P prompt slots, A auxiliary layers, H hidden, N query
heads, G key/value heads, E head dimension, S draft steps, C tokens that are predicted, Q rows of
one sample, K its first-step slots, M = Q * (N / G) (in [Q, G, S, E] S is N / G), D draft
vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specrl.algo.nucleus import Nucleus, joined
from specrl.drafter.eagle3 import Eagle3
from specrl.hidden_states import HiddenStates


@dataclass(frozen=True)
class Sample:
    """One response within a microbatch."""

    states: HiddenStates
    index: int

    @property
    def prompt_length(self) -> int:
        return self.states.prompt_lengths[self.index]

    @property
    def length(self) -> int:
        """Response tokens."""
        span = self.states.slices[self.index]
        return int(span.stop - span.start)

    @property
    def num_targets(self) -> int:
        """Response tokens that a draft can predict: all but the first."""
        return max(self.length - 1, 0)


@dataclass(frozen=True)
class Targets:
    """The C response tokens to predict. Draft step s predicts token c from row `rows_C[c]` - s.

    That row exists while it is at least `firsts_C[c]`, the sample's first. `parts` are final-norm
    states with the output layer they belong to, in order. `tokens_C` are draft ids, negative
    outside the draft vocabulary.
    """

    rows_C: Tensor
    firsts_C: Tensor
    parts: tuple[tuple[Tensor, Tensor], ...]
    nucleus: Nucleus
    tokens_C: Tensor
    temperature: float

    def slots(self, steps: int, num_rows: int) -> Tensor:
        """[S, C] places in [S * R] rows; S * R where the draft would start before the response."""
        steps_S1 = torch.arange(steps, device=self.rows_C.device)[:, None]
        rows_SC = self.rows_C[None] - steps_S1
        places_SC = rows_SC + num_rows * steps_S1
        return torch.where(rows_SC >= self.firsts_C[None], places_SC, steps * num_rows)


@dataclass(frozen=True)
class TttBatch:
    """Samples laid out for `unroll`. Prompt slots are those before the prompt's last token.

    `prompt_sizes` are the slots of each distinct prompt, `prompt_of` the prompt of each sample,
    `sizes` its rows; `lasts_R` the last row of each row's sample.
    """

    prompt_aux_PAH: Tensor
    prompt_embeds_PH: Tensor
    prompt_positions_P: Tensor
    prompt_sizes: tuple[int, ...]
    prompt_of: tuple[int, ...]
    sizes: tuple[int, ...]
    aux_RAH: Tensor
    embeds_RH: Tensor
    positions_R: Tensor
    lasts_R: Tensor

    @property
    def num_rows(self) -> int:
        return len(self.lasts_R)

    def embeds(self, step: int) -> Tensor:
        """Of response token r + step; beyond the end the last token's, which nothing scores."""
        if step == 0:
            return self.embeds_RH
        rows_R = torch.arange(step, step + self.num_rows, device=self.lasts_R.device)
        return self.embeds_RH.index_select(0, torch.minimum(rows_R, self.lasts_R))


def lay_out(samples: Sequence[Sample], dtype: torch.dtype) -> TttBatch:
    """Responses of equal prompts in one microbatch share the prompt's slots."""
    prompts: dict[tuple[int, int], int] = {}
    prompt_of: list[int] = []
    owners: list[Sample] = []
    for sample in samples:
        key = (id(sample.states), int(sample.states.rows[sample.index][0]))
        if key not in prompts:
            prompts[key] = len(owners)
            owners.append(sample)
        prompt_of.append(prompts[key])
    sizes = [sample.length for sample in samples]
    device = samples[0].states.aux_TAH.device
    lengths = [sample.prompt_length for sample in samples]
    positions = [torch.arange(p - 1, p - 1 + r) for p, r in zip(lengths, sizes, strict=True)]
    ends = torch.tensor(sizes).cumsum(0) - 1
    return TttBatch(
        prompt_aux_PAH=_aux(owners, dtype, prompt=True),
        prompt_embeds_PH=_embeds(owners, dtype, prompt=True),
        prompt_positions_P=torch.cat([torch.arange(s.prompt_length - 1) for s in owners]).to(
            device
        ),
        prompt_sizes=tuple(sample.prompt_length - 1 for sample in owners),
        prompt_of=tuple(prompt_of),
        sizes=tuple(sizes),
        aux_RAH=_aux(samples, dtype, prompt=False),
        embeds_RH=_embeds(samples, dtype, prompt=False),
        positions_R=torch.cat(positions).to(device),
        lasts_R=ends.repeat_interleave(torch.tensor(sizes)).to(device),
    )


def lay_out_targets(samples: Sequence[Sample], draft_ids_V: Tensor) -> Targets:
    """The targets of the samples that `lay_out` was given; their temperature must be one."""
    temperatures = {sample.states.temperature for sample in samples}
    assert len(temperatures) == 1, temperatures
    rows, firsts, parts, nuclei, tokens = [], [], [], [], []
    first = 0
    for sample in samples:
        states, span = sample.states, sample.states.slices[sample.index]
        rows.append(torch.arange(first, first + sample.num_targets))
        firsts.append(torch.full((sample.num_targets,), first))
        first += sample.length
        drafted = slice(span.start + 1, span.stop)
        parts.append((states.final_RH[drafted], states.head_DH))
        nuclei.append(states.nucleus.of(drafted))
        predicted = states.rows[sample.index][sample.prompt_length + 1 :]
        tokens.append(states.token_ids_T[predicted])
    device = draft_ids_V.device
    return Targets(
        rows_C=torch.cat(rows).to(device),
        firsts_C=torch.cat(firsts).to(device),
        parts=tuple(parts),
        nucleus=joined(nuclei),
        tokens_C=draft_ids_V[torch.cat(tokens)],
        temperature=temperatures.pop(),
    )


def unroll(draft: Eagle3, batch: TttBatch, steps: int) -> Iterator[Tensor]:
    """The layer's outputs [R, H] before the final norm, step by step."""
    _, prompt_key, prompt_value, _ = draft.project(
        batch.prompt_embeds_PH, draft.features(batch.prompt_aux_PAH), batch.prompt_positions_P
    )
    attention = _Attention(batch, prompt_key, prompt_value)
    features_RH = draft.features(batch.aux_RAH)
    for step in range(steps):
        query_RNE, key_RGE, value_RGE, residual_RH = draft.project(
            batch.embeds(step), features_RH, batch.positions_R + step
        )
        attention.extend(key_RGE, value_RGE)
        features_RH = draft.finish(attention(query_RNE), residual_RH)
        yield features_RH


class _Attention:
    """Keys and values that each sample's rows see, growing step by step."""

    def __init__(self, batch: TttBatch, prompt_key_PGE: Tensor, prompt_value_PGE: Tensor) -> None:
        self._sizes = list(batch.sizes)
        prompt_keys = torch.split(prompt_key_PGE, list(batch.prompt_sizes))
        prompt_values = torch.split(prompt_value_PGE, list(batch.prompt_sizes))
        self._prompts = [(prompt_keys[row], prompt_values[row]) for row in batch.prompt_of]
        self._first: list[tuple[Tensor, Tensor]] = []
        self._later: list[list[tuple[Tensor, Tensor]]] = [[] for _ in batch.sizes]
        self._masks_Q1K = [
            _future(size, len(key), key.dtype, key.device)
            for size, (key, _) in zip(batch.sizes, self._prompts, strict=True)
        ]

    def extend(self, key_RGE: Tensor, value_RGE: Tensor) -> None:
        """Takes the keys and values of the next step."""
        keys, values = torch.split(key_RGE, self._sizes), torch.split(value_RGE, self._sizes)
        pairs = list(zip(keys, values, strict=True))
        if self._first:
            for later, (key, value) in zip(self._later, pairs, strict=True):
                later.append((key.unsqueeze(2), value.unsqueeze(2)))
            return
        for (prompt_key, prompt_value), (key, value) in zip(self._prompts, pairs, strict=True):
            whole = (torch.cat([prompt_key, key]), torch.cat([prompt_value, value]))
            self._first.append((whole[0].transpose(0, 1), whole[1].transpose(0, 1)))

    def __call__(self, query_RNE: Tensor) -> Tensor:
        queries = torch.split(query_RNE, self._sizes)
        return torch.cat(
            [
                _attend(query, first, later, mask)
                for query, first, later, mask in zip(
                    queries, self._first, self._later, self._masks_Q1K, strict=True
                )
            ]
        )


def _future(rows: int, prompt_slots: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[Q, 1, K] additive: a row's first slot is prompt_slots + row, and later ones are unseen."""
    unseen = torch.full((rows, prompt_slots + rows), float("-inf"), dtype=dtype, device=device)
    return unseen.triu_(prompt_slots + 1)[:, None, :]


def _attend(
    query_QNE: Tensor,
    first: tuple[Tensor, Tensor],
    later: Sequence[tuple[Tensor, Tensor]],
    mask_Q1K: Tensor,
) -> Tensor:
    """`first` are [G, K, E] for all rows, each of `later` [Q, G, 1, E] for the row itself alone."""
    keys_GKE, values_GKE = first
    groups, num_keys, size = keys_GKE.shape
    rows = len(query_QNE)
    query_QGSE = (query_QNE * size**-0.5).view(rows, groups, -1, size)
    query_GME = query_QGSE.transpose(0, 1).reshape(groups, -1, size)
    scores = (query_GME @ keys_GKE.transpose(1, 2)).view(groups, rows, -1, num_keys) + mask_Q1K
    own = [(query_QGSE * key).sum(-1, keepdim=True).transpose(0, 1) for key, _ in later]
    weights = torch.cat([scores, *own], dim=-1).softmax(-1) if own else scores.softmax(-1)
    mixed_GME = weights[..., :num_keys].reshape(groups, -1, num_keys) @ values_GKE
    out_QGSE = mixed_GME.view(groups, rows, -1, size).transpose(0, 1)
    for number, (_, value) in enumerate(later):
        own_weight = weights[..., num_keys + number, None].transpose(0, 1)
        out_QGSE = torch.addcmul(out_QGSE, own_weight, value)
    return out_QGSE.reshape(rows, -1, size)


def _aux(samples: Sequence[Sample], dtype: torch.dtype, *, prompt: bool) -> Tensor:
    parts = []
    for sample in samples:
        split = sample.prompt_length - 1
        rows = sample.states.rows[sample.index]
        parts.append(sample.states.aux_TAH[rows[:split] if prompt else rows[split:-1]])
    return torch.cat(parts).to(dtype)


def _embeds(samples: Sequence[Sample], dtype: torch.dtype, *, prompt: bool) -> Tensor:
    """Of the token after each slot."""
    parts = []
    for sample in samples:
        split = sample.prompt_length
        rows = sample.states.rows[sample.index]
        parts.append(sample.states.embeds_TH[rows[1:split] if prompt else rows[split:]])
    return torch.cat(parts).to(dtype)
