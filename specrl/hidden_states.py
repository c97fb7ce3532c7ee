"""What a learned draft sees of the policy's own forward pass: the seam of learner and drafter.

Legend: T packed tokens, A auxiliary layers, H hidden, R response tokens, D draft vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specrl.types import Float32

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from specrl.algo.nucleus import Nucleus


@dataclass(frozen=True)
class HiddenStates:
    """One microbatch, detached from the policy's graph.

    `aux_TAH[:, a]` is the un-normed residual stream after auxiliary layer a, `embeds_TH` the token
    embeddings. `rows[n]` are the packed rows of sample n, prompt (`prompt_lengths[n]` tokens, maybe
    shared with other samples) then response. `final_RH` are the final-norm states that predict each
    response token, `nucleus` what top_p leaves of their logits / `temperature` over the whole
    vocabulary (cutoffs of -inf at top_p 1). `slices[n]` are the response tokens of sample n,
    `head_DH` the output layer's rows of the draft vocabulary, as they were in this forward pass.
    """

    token_ids_T: "Tensor"
    embeds_TH: "Tensor"
    aux_TAH: "Tensor"
    rows: "tuple[Tensor, ...]"
    prompt_lengths: tuple[int, ...]
    final_RH: "Tensor"
    nucleus: "Nucleus"
    slices: tuple[slice, ...]
    head_DH: "Tensor"
    temperature: float

    @property
    def num_tokens(self) -> int:
        """Response tokens."""
        return len(self.final_RH)


class DraftTrainer(Protocol):
    """A draft and its optimizer inside a learner process.

    `aux_layers` are Hugging Face indices: layer L is the residual stream after L layers.
    `target_ids_D` are the policy's ids of the draft vocabulary.
    """

    aux_layers: tuple[int, ...]
    target_ids_D: "Tensor"

    def fit(
        self,
        batches: Sequence[HiddenStates],
        learning_rate: float,
        group: "ProcessGroup | None" = None,
        loss: str | None = None,
    ) -> Mapping[str, float]:
        """One pass over the batches. Every rank of the data-parallel `group` calls it, also with
        none; None is this rank alone. `loss` stands in for the configured one.

        Sums of this rank, to be added up over calls: tokens (of the responses), slots (drafts, one
        starts after each token but the last), over slots loss, out_of_vocabulary_mass and
        expected_accepted_pos_<i>; besides updates and grad_norm (last), of all ranks together.
        Policy RNG is not touched.
        """
        ...

    def replay(self, batches: Sequence[HiddenStates], k: int) -> list[Float32]:
        """Per sample [R, k]: P(draft token s of a draft that starts at response token t is kept).

        Row t drafts response tokens t+1 .. t+k; 0 beyond the response.
        """
        ...

    def tensors(self) -> "Mapping[str, Tensor]":
        """The checkpoint's tensors by the names vLLM loads (t2d left out), not copied."""
        ...

    def save(self, folder: Path) -> None:
        """Master weights, optimizer state and counters into the existing `folder`."""
        ...

    def load(self, folder: Path) -> None:
        """Takes back what `save` wrote."""
        ...

    def export(self, folder: Path) -> None:
        """A Hugging Face folder that vLLM loads as it is."""
        ...
