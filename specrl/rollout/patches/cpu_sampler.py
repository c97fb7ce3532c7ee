"""Sampling on vLLM's CPU build: drafts, their verification, and steps without drafts.

The build's own verification reads uninitialised temperatures (vllm#55005), indexes with padding and
fails on a step without draft rows; it ignores block verification; and it draws noise for every
token of the vocabulary at every position, which costs as much as the model. Here all rows of a step
become log-probs once, and one token is drawn per request.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from specrl.rollout.drawing import draw
from specrl.rollout.verification import NO_TOKEN, Drafts, Verified, verify

# B requests, K draft positions, N rows of logits, T draft tokens, D draft vocabulary, V vocabulary

GREEDY_BELOW = 1e-5  # vLLM's own bound on the temperature


@dataclass
class _Choice:
    """What the process's one engine does: block verification, and the draft's vocabulary."""

    block: bool = False
    vocabulary_D: torch.Tensor | None = None


_choice = _Choice()


def install() -> None:
    """Replaces how vLLM samples drafts, verifies them and samples without them."""
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    Sampler.forward = _sample
    RejectionSampler.forward = _verify
    SpecDecodeBaseProposer._sample_draft_tokens = _propose


def verify_by_block(block: bool) -> None:
    """Verifies drafts with known probabilities jointly (arXiv:2403.10444), or one by one."""
    _choice.block = block


def problem() -> str | None:
    """Samples rows whose outcome is certain; None when it is as expected.

    They take temperatures that settle near ties, and a padded draft behind a certain one.
    """
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    logits_NV = torch.zeros(6, 4)
    logits_NV[range(6), [3, 2, 1, 3, 2, 1]] = 1.0
    metadata = SpecDecodeMetadata.make_dummy([[3, 1], [3, NO_TOKEN]], torch.device("cpu"))
    metadata.bonus_logits_indices = torch.tensor([2, 5])
    metadata.target_logits_indices = torch.tensor([0, 1, 3, 4])
    sampling = _certain_sampling()
    sampler = RejectionSampler(Sampler(logprobs_mode="processed_logprobs"))
    try:
        output = sampler(metadata, None, logits_NV, sampling)
    except Exception as error:  # whatever it is, drafts are not verified
        return f"vLLM's verification fails: {type(error).__name__}: {error}"
    if output.sampled_token_ids.tolist() != [[3, 2, NO_TOKEN], [3, 2, NO_TOKEN]]:
        return "vLLM verifies draft tokens wrongly (vllm#55005)"
    return None


def _certain_sampling() -> Any:
    return SimpleNamespace(
        temperature=torch.tensor([0.01, 0.02]),
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=0,
        no_penalties=True,
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=SimpleNamespace(argmax_invariant=[], non_argmax_invariant=[]),
        logprob_token_ids=None,
        output_token_ids=[],
        spec_token_ids=None,
        thinking_budget_state_holder=None,
    )


def _sample(  # vLLM's signature
    self: Any,  # noqa: ARG001 (vLLM's signature)
    logits: torch.Tensor,
    sampling_metadata: Any,
    predict_bonus_token: bool = False,  # noqa: ARG001 (vLLM's signature)
    logprobs_mode_override: str | None = None,  # noqa: ARG001 (vLLM's signature)
) -> Any:
    """Stands for `Sampler.forward`: a step in which no request has a draft."""
    no_drafts = Drafts(torch.empty(0, dtype=torch.int64), [0] * len(logits))
    return _output(_verified(logits, no_drafts, sampling_metadata), sampling_metadata)


def _verify(  # vLLM's signature
    self: Any,  # noqa: ARG001 (vLLM's signature)
    metadata: Any,
    draft_probs: torch.Tensor | None,
    logits: torch.Tensor,
    sampling_metadata: Any,
) -> Any:
    """Stands for `RejectionSampler.forward`."""
    vocabulary_D = _choice.vocabulary_D
    if draft_probs is None or draft_probs.shape[1] == logits.shape[1]:
        vocabulary_D = None
    drafts = Drafts(metadata.draft_token_ids, metadata.num_draft_tokens, draft_probs, vocabulary_D)
    return _output(_verified(logits, drafts, sampling_metadata), sampling_metadata)


def _propose(
    self: Any, hidden_states: torch.Tensor, sampling_metadata: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Stands for a drafter's `_sample_draft_tokens`: ids [B], probabilities [B, D] or None."""
    offsets_D = getattr(self.model, "draft_id_to_target_id", None)
    if offsets_D is None:
        logits_BD, _choice.vocabulary_D = self.model.compute_logits(hidden_states), None
    else:
        logits_BD = self.model.logits_processor(self.model.lm_head, hidden_states)
        _choice.vocabulary_D = torch.arange(len(offsets_D)) + offsets_D
    if not self._enable_probabilistic_draft_probs or sampling_metadata.all_greedy:
        drawn_B, probs_BD = logits_BD.argmax(-1), None
    else:
        logprobs_BD = _scaled(logits_BD, sampling_metadata.temperature).log_softmax(-1)
        drawn_B, probs_BD = draw(logprobs_BD), logprobs_BD.exp_()
    if _choice.vocabulary_D is not None:
        drawn_B = _choice.vocabulary_D[drawn_B]
    return drawn_B, probs_BD


def _verified(logits_NV: torch.Tensor, drafts: Drafts, sampling: Any) -> Verified:
    _refuse_unknown(sampling)
    greedy_B = None
    logits_NV = logits_NV.float()
    if sampling.all_greedy:
        greedy_B = torch.ones(len(drafts.counts), dtype=torch.bool)
    else:
        if not sampling.all_random:
            greedy_B = sampling.temperature < GREEDY_BELOW
        logits_NV = _constrained(logits_NV, torch.tensor(drafts.counts) + 1, sampling)
    return verify(logits_NV.log_softmax(-1), drafts, draw, greedy_B, _choice.block)


def _constrained(logits_NV: torch.Tensor, rows_B: torch.Tensor, sampling: Any) -> torch.Tensor:
    """Temperature, top_k and top_p of each request on all of its rows."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    def per_row(values_B: torch.Tensor | None) -> torch.Tensor | None:
        return None if values_B is None else values_B.repeat_interleave(rows_B)

    logits_NV = _scaled(logits_NV, per_row(sampling.temperature))
    if sampling.top_k is None and sampling.top_p is None:
        return logits_NV
    masked_NV: torch.Tensor = apply_top_k_top_p(
        logits_NV, per_row(sampling.top_k), per_row(sampling.top_p)
    )
    return masked_NV


def _scaled(logits_NV: torch.Tensor, temperature_N: torch.Tensor | None) -> torch.Tensor:
    """fp32 logits over the temperature; greedy rows as they are."""
    logits_NV = logits_NV.float()
    if temperature_N is None or bool((temperature_N == 1.0).all()):
        return logits_NV
    return logits_NV / torch.where(temperature_N < GREEDY_BELOW, 1.0, temperature_N)[:, None]


def _output(verified: Verified, sampling: Any) -> Any:
    from vllm.v1.outputs import LogprobsTensors, SamplerOutput

    tokens_BK = verified.tokens_BK.to(torch.int32)
    logprobs = None
    if sampling.max_num_logprobs is not None:
        flat = tokens_BK.clamp(min=0).reshape(-1, 1)
        # Ranks cost a pass over the vocabulary and nobody reads them.
        ranks = torch.zeros(len(flat), dtype=torch.int64)
        logprobs = LogprobsTensors(flat, verified.logprobs_BK.reshape(-1, 1), ranks)
    return SamplerOutput(sampled_token_ids=tokens_BK, logprobs_tensors=logprobs)


def _refuse_unknown(sampling: Any) -> None:
    """Only what `worker.sampling_params` asks for is implemented here."""
    assert not sampling.generators, "per-request seeds are not supported"
    assert sampling.no_penalties, "penalties are not supported"
    assert sampling.allowed_token_ids_mask is None, "allowed_token_ids is not supported"
    assert not sampling.bad_words_token_ids, "bad_words is not supported"
    assert sampling.max_num_logprobs in {None, 0}, "logprobs above 0 are not supported"
