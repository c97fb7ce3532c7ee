"""Our draft and vLLM's propose the same tokens, with the same probabilities.

Legend: T tokens, A auxiliary layers, H hidden, K draft steps, D draft vocabulary.
"""

import io
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from drafting_engine import Draft, Round
from proposals import Proposal, propose
from torch import Tensor

from specrl.config.model import ModelConfig
from specrl.drafter.eagle3 import Eagle3
from specrl.drafter.eagle3_folder import (
    fresh_folder,
    load_draft,
    read_facts,
    read_folder,
    write_folder,
)
from specrl.models.tiny import tiny_folder
from specrl.rollout.settings import EngineSettings
from tests.warm_process import with_vllm

pytestmark = pytest.mark.slow

K, VOCAB, MAX_MODEL_LEN = 3, 96, 128
LAYERS = (0, 2, 3)
TOLERANCE = 1e-4
REDUCED = tuple(range(3, VOCAB, 2))
PROMPT_LENGTHS, TEMPERATURES = (1, 7, 30, 18), (1.0, 0.7, 1.3, 1.0)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...] | None]] = {
    "llama-reduced": ({"model_type": "llama"}, REDUCED),
    "llama-full": ({"model_type": "llama", "rope_parameters": LLAMA3}, None),
    "qwen3-reduced": ({"model_type": "qwen3", "tie_word_embeddings": False}, REDUCED),
}


@dataclass
class Drafted:
    """What vLLM drafted in a greedy and in a sampled round, and our draft beside it."""

    greedy: Round
    sampled: Round
    policy: Any
    draft: Eagle3
    target_ids_D: Tensor

    def ours(self, tokens: list[int], theirs: Draft, layers: tuple[int, ...] = LAYERS) -> Proposal:
        """Our proposal in the same context, along the tokens they drafted."""
        number = int(theirs.request.split("request")[1].split("-")[0])
        sampled = theirs.probs_KD is not None
        return propose(
            self.draft,
            self.aux(tokens[: theirs.position + 1], layers),
            torch.tensor([*tokens[1 : theirs.position + 1], theirs.next_id]),
            self.policy.get_input_embeddings().weight,
            self.target_ids_D,
            K,
            drafted=theirs.token_ids if sampled else None,
            temperature=TEMPERATURES[number] if sampled else 1.0,
        )

    @torch.no_grad()
    def aux(self, tokens: list[int], layers: tuple[int, ...]) -> Tensor:
        states = self.policy(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        return torch.stack([states[layer][0] for layer in layers], dim=1)


@pytest.fixture(scope="module", params=list(CASES.values()), ids=list(CASES))
def drafted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drafted:
    from transformers import AutoModelForCausalLM

    shape, target_ids = request.param
    folder = tmp_path_factory.mktemp("parity")
    policy = sharp_policy({**shape, "num_hidden_layers": 4}, folder)
    sharp_draft(policy, target_ids, folder / "draft")
    greedy, sampled = run_engine(policy, folder)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    return Drafted(greedy, sampled, model, *load_draft(folder / "draft"))


def sharp_policy(shape: dict[str, Any], folder: Path) -> Path:
    size = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "seed": 3,
            "initializer_range": 0.2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 32}  # fmt: skip
    config = ModelConfig(
        name="tiny", source="tiny", path="t", tiny={**size, **shape}, cache_dir=str(folder)
    )
    return tiny_folder(config)


def sharp_draft(policy: Path, target_ids: tuple[int, ...] | None, folder: Path) -> None:
    """Far from the flat, symmetric start that would hide an error: no norm is 1, large weights."""
    fresh_folder(policy, target_ids, LAYERS, 5, "float32", folder)
    shape, tensors = read_folder(folder)
    random = torch.Generator().manual_seed(1)
    for name, tensor in tensors.items():
        if "norm" in name:
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=random))
    tensors["lm_head.weight"] *= 2
    write_folder(folder, shape, tensors, read_facts(folder))


def run_engine(policy: Path, folder: Path) -> list[Round]:
    random = torch.Generator().manual_seed(2)
    prompts = [torch.randint(4, VOCAB, (n,), generator=random).tolist() for n in PROMPT_LENGTHS]
    rounds = [
        [
            {"prompt": prompt, "temperature": temperature, "max_tokens": 12 + 5 * i}
            for i, (prompt, temperature) in enumerate(zip(prompts, temperatures, strict=True))
        ]
        for temperatures in ((0.0,) * len(prompts), TEMPERATURES)
    ]
    speculation = {"method": "eagle3", "model": str(folder / "draft"), "num_speculative_tokens": K,
                   "draft_sample_method": "probabilistic"}  # fmt: skip
    settings = EngineSettings(
        str(policy),
        MAX_MODEL_LEN,
        dtype="float32",
        speculative_config=speculation,
        engine_args={"max_num_seqs": 8, "kv_cache_memory_bytes": 2**27},
    )
    engine = with_vllm().fork("drafting_engine:serve", settings, rounds)
    answer: bytes | str = engine.connection.recv()
    engine.kill()
    assert isinstance(answer, bytes), answer
    answered: list[Round] = torch.load(io.BytesIO(answer), weights_only=False)
    return answered


def contexts(round_: Round) -> list[tuple[list[int], Draft]]:
    """Every proposal whose context the finished response still shows, with all its tokens."""
    found = []
    for draft in round_.drafts:
        tokens = round_.token_ids[draft.request.split("-")[0]]
        if draft.position + 1 < len(tokens):
            assert tokens[draft.position + 1] == draft.next_id
            found.append((tokens, draft))
    return found


def test_the_engine_taps_the_layers_of_the_draft_folder(drafted: Drafted) -> None:
    assert drafted.greedy.aux_layers == drafted.draft.shape.aux_layers == LAYERS


def test_greedy_drafts_are_the_same_tokens(drafted: Drafted) -> None:
    found = contexts(drafted.greedy)
    assert len({draft.request for _, draft in found}) == len(PROMPT_LENGTHS)
    assert len(found) > 30
    for tokens, draft in found:
        assert drafted.ours(tokens, draft).token_ids_K.tolist() == draft.token_ids


def test_sampled_drafts_have_the_same_probabilities(drafted: Drafted) -> None:
    found = contexts(drafted.sampled)
    assert len(found) > 20
    worst = max(probability_error(drafted, tokens, draft) for tokens, draft in found)
    assert worst < TOLERANCE, worst
    assert accepted(found), "no draft was kept: the cache was never extended by one"


def test_another_order_of_layers_would_be_noticed(drafted: Drafted) -> None:
    tokens, draft = contexts(drafted.sampled)[-1]
    assert probability_error(drafted, tokens, draft, (2, 0, 3)) > 100 * TOLERANCE


def probability_error(
    drafted: Drafted, tokens: list[int], draft: Draft, layers: tuple[int, ...] = LAYERS
) -> float:
    assert draft.probs_KD is not None
    return float((drafted.ours(tokens, draft, layers).probs_KD - draft.probs_KD).abs().max())


def accepted(found: list[tuple[list[int], Draft]]) -> bool:
    """Whether some proposal starts more than one token after the one before it."""
    starts: dict[str, list[int]] = {}
    for _, draft in found:
        starts.setdefault(draft.request, []).append(draft.position)
    return any(b - a > 1 for own in starts.values() for a, b in pairwise(own))
