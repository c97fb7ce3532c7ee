"""A real engine in a process of its own that tells what its proposer drafted."""

import io
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from specrl.rollout.settings import EngineSettings
from specrl.rollout.start import start_vllm


@dataclass
class Draft:
    """One proposal: it starts after token number `position` + 1 of `request`.

    K draft steps, D draft vocabulary.
    """

    request: str
    position: int
    next_id: int
    token_ids: list[int]
    probs_KD: Tensor | None


@dataclass
class Round:
    """`token_ids[request]` is prompt and response."""

    drafts: list[Draft] = field(default_factory=list)
    token_ids: dict[str, list[int]] = field(default_factory=dict)
    aux_layers: tuple[int, ...] = ()


def watch_proposer(drafts: list[Draft]) -> None:
    from vllm.v1.spec_decode.eagle import EagleProposer

    original, start = EagleProposer.propose, EagleProposer.__init__

    def remember(self: Any, vllm_config: Any, device: Any, runner: Any) -> None:
        start(self, vllm_config, device, runner)
        self.watched = runner

    def propose(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        metadata, last = kwargs["common_attn_metadata"], kwargs["token_indices_to_sample"]
        if last is None:
            last = metadata.query_start_loc[1:] - 1
        # Copied before the call: the proposer reuses the buffers.
        positions = kwargs["target_positions"][last].tolist()
        next_ids = kwargs["next_token_ids"].tolist()
        requests = list(self.watched.input_batch.req_ids)
        result: Tensor = original(self, *args, **kwargs)
        probs = self.take_last_draft_probs()
        for row, (request, position, next_id) in enumerate(
            zip(requests, positions, next_ids, strict=True)
        ):
            probs_KD = None if probs is None else probs[row].clone()
            drafts.append(Draft(request, position, next_id, result[row].tolist(), probs_KD))
        return result

    EagleProposer.__init__, EagleProposer.propose = remember, propose


def serve(
    connection: Connection, settings: EngineSettings, rounds: Sequence[list[dict[str, Any]]]
) -> None:
    """Sends a `Round` for each of `rounds`, which are prompts with their sampling, or a traceback.

    The rounds as bytes of `torch.save`: tensors sent as they are would live in this process. To be
    run in one whose vLLM nobody else uses.
    """
    try:
        answer = io.BytesIO()
        torch.save(drafted(settings, rounds), answer)
        connection.send(answer.getvalue())
    except Exception:
        connection.send(traceback.format_exc())


def drafted(settings: EngineSettings, rounds: Sequence[list[dict[str, Any]]]) -> list[Round]:
    drafts: list[Draft] = []
    watch_proposer(drafts)
    llm = start_vllm(settings)
    layers = llm.collective_rpc("specrl_aux_layers")[0]
    answers = []
    for number, round_ in enumerate(rounds):
        drafts.clear()
        answers.append(one_round(llm, number, round_, drafts, tuple(layers)))
    return answers


def one_round(
    llm: Any, number: int, requests: list[dict[str, Any]], drafts: list[Draft], layers: Any
) -> Round:
    from vllm import SamplingParams, TokensPrompt

    engine = llm.llm_engine
    for i, request in enumerate(requests):
        prompt = TokensPrompt(prompt_token_ids=request["prompt"])
        sampling = SamplingParams(
            temperature=request["temperature"],
            max_tokens=request["max_tokens"],
            ignore_eos=True,
            detokenize=False,
        )
        engine.add_request(f"round{number}request{i}", prompt, sampling)
    result = Round(aux_layers=layers)
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids]
                result.token_ids[output.request_id] = tokens
    result.drafts = list(drafts)
    return result
