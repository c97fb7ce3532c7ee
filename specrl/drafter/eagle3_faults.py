"""What can be wrong with a draft folder; each fault is named in one line.

Legend: D draft vocabulary, V vocabulary of the policy, H hidden.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specrl.drafter.eagle3 import NUM_AUX_LAYERS, DraftShape
from specrl.drafter.eagle3_vocabulary import D2T, T2D, t2d_of, target_ids_of, vocabulary_digest
from specrl.drafter.policy_folder import policy_config, policy_fingerprint, policy_tensor
from specrl.errors import UserError

EMBEDDING = "embed_tokens.weight"
SERVED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
# Rows of the embeddings compared with the policy's, and the distance that only another model has.
COMPARED_ROWS, FOREIGN_DISTANCE = 2048, 0.5
MTP_MARKS = ("eh_proj", "enorm", "mtp_layers", "token_layernorm")


def check_tensors(shape: DraftShape, tensors: Mapping[str, Tensor], key: str) -> None:
    """Another kind of draft, missing tensors, other sizes than config.json says."""
    _check_kind(shape, tensors, key)
    expected: dict[str, tuple[int, ...]] = shape.tensor_shapes()
    if shape.draft_vocab < shape.vocab:
        expected[D2T] = (shape.draft_vocab,)
    for name, size in expected.items():
        if name not in tensors:
            raise UserError(f"{key} lacks the tensor {name}; restore the folder")
        if tuple(tensors[name].shape) != size:
            raise UserError(
                f"{key}: {name} is {tuple(tensors[name].shape)}, its config.json says {size}; "
                "restore the folder"
            )
        if name != D2T and tensors[name].dtype not in SERVED:
            raise UserError(
                f"{key}: {name} is {tensors[name].dtype}, as in a quantised draft; give one in "
                "bfloat16, float16 or float32"
            )


def _check_kind(shape: DraftShape, tensors: Mapping[str, Tensor], key: str) -> None:
    marks = [name for name in tensors if any(mark in name for mark in MTP_MARKS)]
    fusion = tensors.get("fc.weight")
    if marks:
        kind = f"an MTP head (it has {marks[0]})"
    elif fusion is None:
        kind = "not EAGLE-3 (it has no fc.weight)"
    elif fusion.dim() != 2:
        kind = f"not EAGLE-3 (fc.weight is {tuple(fusion.shape)})"
    elif fusion.shape[-1] == 2 * shape.hidden:
        kind = f"an EAGLE-1 or -2 head (fc.weight is {tuple(fusion.shape)})"
    elif fusion.shape[-1] != NUM_AUX_LAYERS * fusion.shape[0]:
        kind = f"not EAGLE-3 over {NUM_AUX_LAYERS} layers (fc.weight is {tuple(fusion.shape)})"
    else:
        return
    raise UserError(f"{key} is a draft of another kind, {kind}; give an EAGLE-3 folder")


def check_target(
    shape: DraftShape, values: Mapping[str, Any], policy_folder: Path, key: str
) -> None:
    """A config.json, `values`, that tells of another target than the policy, whoever wrote it."""
    policy = policy_config(policy_folder)
    width, last = values.get("target_hidden_size"), policy["num_hidden_layers"] - 1
    kinds = _verifier_kinds(values)
    if width is not None and width != policy["hidden_size"]:
        fault = f"its target's hidden size is {width}, that of", policy["hidden_size"]
    elif kinds and not set(kinds) & set(policy["architectures"]):
        fault = f"its target is a {kinds[0]},", policy["architectures"][0]
    elif max(shape.aux_layers) > last:
        fault = f"it sees layer {max(shape.aux_layers)}, the last layer of", last
    else:
        return
    raise UserError(
        f"{key} is for another model: {fault[0]} the policy {policy_folder} is {fault[1]}; give a "
        "draft of this policy"
    )


def _verifier_kinds(values: Mapping[str, Any]) -> list[str]:
    """Architectures of the target, as speculators writes them."""
    found: Any = values
    for name in ("speculators_config", "verifier", "architectures"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return [str(kind) for kind in found] if isinstance(found, list) else []


def check_policy(
    shape: DraftShape,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    policy_folder: Path,
    key: str,
) -> None:
    """A draft for another model."""
    policy = policy_config(policy_folder)
    for what, drafts, theirs in (
        ("hidden size", shape.hidden, policy["hidden_size"]),
        ("vocabulary", shape.vocab, policy["vocab_size"]),
    ):
        if drafts != theirs:
            raise UserError(
                f"{key} is for another model: its {what} is {drafts}, that of the policy "
                f"{policy_folder} is {theirs}; give a draft of this policy"
            )
    fingerprint = policy_fingerprint(policy_folder)
    if facts.get("policy", fingerprint) != fingerprint:
        raise UserError(
            f"{key} is for another model: it was made for the policy {facts['policy']}, "
            f"{policy_folder} is {fingerprint}; give a draft of this policy"
        )
    if EMBEDDING in tensors:
        _check_embedding(tensors[EMBEDDING], policy_folder, key)


def _check_embedding(embedding_VH: Tensor, policy_folder: Path, key: str) -> None:
    """A policy moves little in RL; the embeddings of two models have nothing in common."""
    policy_VH = policy_tensor(policy_folder, "model.embed_tokens.weight")
    if embedding_VH.shape != policy_VH.shape:
        raise UserError(
            f"{key} is for another model: its token embeddings are {tuple(embedding_VH.shape)}, "
            f"those of the policy {policy_folder} {tuple(policy_VH.shape)}; give a draft of this "
            "policy"
        )
    policy_VH = policy_VH[:COMPARED_ROWS].float()
    distance = (embedding_VH[:COMPARED_ROWS].float() - policy_VH).norm() / policy_VH.norm()
    if not distance < FOREIGN_DISTANCE:
        raise UserError(
            f"{key} is for another model: its token embeddings are {float(distance):.2f} away from "
            f"those of the policy {policy_folder} (relative; at most {FOREIGN_DISTANCE}); give a "
            "draft of this policy"
        )


def check_layers(
    shape: DraftShape, facts: Mapping[str, Any], aux_layers: Sequence[int], key: str
) -> None:
    """A draft that sees other layers than the run gives it."""
    asked = list(shape.aux_layers)
    trained = facts.get("aux_layers", asked)
    if trained != asked:
        raise UserError(
            f"{key} was made for layers {trained} of its policy, its config.json asks the "
            f"engine for {asked}; restore config.json"
        )
    if asked != list(aux_layers):
        raise UserError(
            f"{key} sees layers {asked} of its policy, the run gives it "
            f"{list(aux_layers)}; use drafter.aux_layers={asked}, or another draft"
        )


def check_vocabulary(
    shape: DraftShape, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], key: str
) -> None:
    """A map of draft ids to the policy's that cannot be, or is not the one of this draft."""
    ids_D = target_ids_of(tensors, shape.draft_vocab)
    fault = _map_fault(ids_D, tensors.get(T2D), shape)
    if fault is None and facts.get("vocabulary", vocabulary_digest(ids_D)) != vocabulary_digest(
        ids_D
    ):
        fault = f"d2t is not the one the draft was made with (checksum {facts['vocabulary']})"
    if fault is not None:
        raise UserError(f"{key}: the vocabulary map is wrong: {fault}; restore the folder")


def _map_fault(ids_D: Tensor, t2d_V: Tensor | None, shape: DraftShape) -> str | None:
    low, high = int(ids_D.min()), int(ids_D.max())
    if low < 0 or high >= shape.vocab:
        return f"d2t leads to tokens {low}..{high}, the policy has 0..{shape.vocab - 1}"
    if len(set(ids_D.tolist())) < len(ids_D):
        return "d2t leads to one token from several draft tokens"
    if len(ids_D) == shape.vocab and not torch.equal(ids_D, torch.arange(shape.vocab)):
        return "a draft over the whole vocabulary must not map it"
    if t2d_V is None:
        return None
    expected_V = t2d_of(ids_D, shape.vocab)
    differing = t2d_V.bool() != expected_V if t2d_V.shape == expected_V.shape else None
    if differing is None or bool(differing.any()):
        first = "its length" if differing is None else f"token {int(differing.nonzero()[0])}"
        return f"t2d and d2t disagree, first in {first}"
    return None


def check_values(tensors: Mapping[str, Tensor], key: str) -> None:
    """NaN, inf, or a tensor of nothing but zeros."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{key}: {name} has NaN or inf; give another draft")
        if not bool(tensor.any()):
            raise UserError(
                f"{key}: {name} is zero throughout, it was never loaded or saved; "
                "give another draft"
            )
