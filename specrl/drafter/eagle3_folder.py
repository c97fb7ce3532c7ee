"""A draft as a Hugging Face folder: a fresh one, reading, writing, and what can be wrong with it.

Legend: D draft vocabulary, V vocabulary of the policy, H hidden.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specrl.drafter.eagle3 import DraftShape, Eagle3
from specrl.drafter.eagle3_config import config_values, fresh_shape, read_shape
from specrl.drafter.eagle3_faults import (
    check_layers,
    check_policy,
    check_target,
    check_tensors,
    check_values,
    check_vocabulary,
)
from specrl.drafter.eagle3_vocabulary import (
    D2T,
    T2D,
    d2t_of,
    t2d_of,
    target_ids_of,
    vocabulary_digest,
)
from specrl.drafter.policy_folder import (
    COMPLETE,
    policy_config,
    policy_fingerprint,
    policy_tensor,
)
from specrl.durable import read_json, sync
from specrl.errors import UserError

WEIGHTS, OLDER_WEIGHTS = "model.safetensors", "pytorch_model.bin"
UNREADABLE = (SafetensorError, OSError, RuntimeError, ValueError, EOFError, UnpicklingError)
HEAD, FINAL_NORM, FEATURE = "lm_head.weight", "norm.weight", "fc.weight"
MID_LAYER = "midlayer."
ATTENTION_INPUTS = tuple(f"self_attn.{letter}_proj.weight" for letter in "qkv")
TAKEN_OVER = (
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
)


def fresh_folder(
    policy_folder: Path,
    target_ids: Sequence[int] | None,
    aux_layers: Sequence[int],
    seed: int,
    dtype: str,
    folder: Path,
) -> None:
    """Writes an untrained draft that begins as the end of the policy.

    Head, final norm and layer are the policy's last ones, the feature is the last auxiliary state
    plus random mixtures of the others; what the layer does with the embedding is random.
    `target_ids` are the policy's ids that can be drafted, ascending; None is all of them. `dtype`
    is torch's name (float32, bfloat16).
    """
    vocab = policy_config(policy_folder)["vocab_size"]
    target_ids_D = torch.tensor(list(range(vocab) if target_ids is None else target_ids))
    shape = fresh_shape(policy_folder, aux_layers, len(target_ids_D))
    tensors = {**_random_tensors(shape, seed), **_last_layer(shape, policy_folder)}
    tensors[FEATURE][:, -shape.hidden :] = torch.eye(shape.hidden)
    for name in ATTENTION_INPUTS:
        hidden_half = policy_tensor(policy_folder, _of_last_layer(policy_folder, name))
        tensors[MID_LAYER + name][:, shape.hidden :] = hidden_half
    head_VH = policy_tensor(policy_folder, "lm_head.weight", "model.embed_tokens.weight")
    tensors[HEAD] = head_VH[target_ids_D].float()
    tensors[FINAL_NORM] = policy_tensor(policy_folder, "model.norm.weight").float()
    kind = getattr(torch, dtype)
    tensors = {name: tensor.to(kind) for name, tensor in tensors.items()}
    known = {"policy": policy_fingerprint(policy_folder)}
    write_folder(folder, shape, {**tensors, D2T: d2t_of(target_ids_D)}, known)


def write_folder(
    folder: Path, shape: DraftShape, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Writes what vLLM loads as it is; an interrupted write leaves the files there were.

    `tensors` are the parameters and, with a reduced vocabulary, `d2t`. `facts` go into
    config.json as they are, beside the layers and the checksum of the vocabulary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: tensors[name].detach().cpu().contiguous() for name in shape.tensor_shapes()}
    ids_D = target_ids_of(tensors, shape.draft_vocab)
    dtype = str(kept[HEAD].dtype).removeprefix("torch.")
    if shape.draft_vocab < shape.vocab:  # vLLM refuses a map of the whole vocabulary
        kept |= {D2T: d2t_of(ids_D), T2D: t2d_of(ids_D, shape.vocab)}
    known = {
        **facts,
        "aux_layers": list(shape.aux_layers),
        "vocabulary": vocabulary_digest(ids_D),
    }
    partial = folder / (WEIGHTS + ".partial")
    save_file(kept, partial, metadata={"format": "pt"})
    _put(partial, folder / WEIGHTS)
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config_values(shape, dtype, known), indent=2), encoding="utf-8")
    _put(partial, folder / "config.json")
    sync(folder)


def read_folder(folder: Path) -> tuple[DraftShape, dict[str, Tensor]]:
    """Shape, and tensors by our names: parameters and, with a reduced vocabulary, `d2t`.

    Reads what SGLang, speculators and the EAGLE authors write, too. Raises `UserError`.
    """
    key = f"draft {folder}"
    shape = read_shape(read_json(folder / "config.json", key, COMPLETE), key, None, ())
    found = _read_tensors(folder, key)
    check_tensors(shape, found, key)
    return shape, _ours(shape, found)


def read_facts(folder: Path) -> dict[str, Any]:
    """What `write_folder` was told; {} in a folder that others wrote."""
    facts = read_json(folder / "config.json", f"draft {folder}", COMPLETE).get("specrl", {})
    return facts if isinstance(facts, dict) else {}


def load_draft(folder: Path) -> tuple[Eagle3, Tensor]:
    """The draft, in the dtype it is stored in, and `target_ids_D`."""
    shape, tensors = read_folder(folder)
    with torch.device("meta"):
        draft = Eagle3(shape)
    parameters = {name: tensors[name] for name in shape.tensor_shapes()}
    draft.load_state_dict(parameters, assign=True)
    return draft, target_ids_of(tensors, shape.draft_vocab)


def adopt_folder(
    source: Path, policy_folder: Path, aux_layers: Sequence[int], folder: Path
) -> None:
    """Writes `source`, a draft in any dialect, to `folder` in ours; embeddings stay the policy's.

    Raises `UserError` as `check_folder` does.
    """
    check_folder(source, policy_folder, aux_layers)
    shape, tensors = _read_checked(source, policy_folder, aux_layers)
    known = {**read_facts(source), "policy": policy_fingerprint(policy_folder)}
    write_folder(folder, shape, _ours(shape, tensors), known)


def check_folder(folder: Path, policy_folder: Path, aux_layers: Sequence[int]) -> None:
    """Raises `UserError` naming why `folder` is no EAGLE-3 draft of the policy on these layers."""
    key = f"draft {folder}"
    shape, tensors = _read_checked(folder, policy_folder, aux_layers)
    facts = read_facts(folder)
    check_policy(shape, tensors, facts, policy_folder, key)
    check_layers(shape, facts, aux_layers, key)
    check_vocabulary(shape, tensors, facts, key)
    check_values(tensors, key)


def _read_checked(
    folder: Path, policy_folder: Path, aux_layers: Sequence[int]
) -> tuple[DraftShape, dict[str, Tensor]]:
    """Shape and every tensor of the folder, complete and of the right sizes."""
    key = f"draft {folder}"
    layers = policy_config(policy_folder)["num_hidden_layers"]
    values = read_json(folder / "config.json", key, COMPLETE)
    shape = read_shape(values, key, layers, aux_layers)
    check_target(shape, values, policy_folder, key)
    tensors = _read_tensors(folder, key)
    check_tensors(shape, tensors, key)
    return shape, tensors


def _ours(shape: DraftShape, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = [*shape.tensor_shapes(), *([D2T] if shape.draft_vocab < shape.vocab else [])]
    return {name: tensors[name] for name in names}


def _random_tensors(shape: DraftShape, seed: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, size in shape.tensor_shapes().items():
        spread = torch.randn(size, generator=random) / size[-1] ** 0.5
        tensors[name] = torch.ones(size) if len(size) == 1 else spread
    return tensors


def _last_layer(shape: DraftShape, policy_folder: Path) -> dict[str, Tensor]:
    """What the draft's layer can take over whole."""
    names = {"hidden_norm.weight": "input_layernorm.weight", **{name: name for name in TAKEN_OVER}}
    tensors = {
        MID_LAYER + own: policy_tensor(policy_folder, _of_last_layer(policy_folder, name)).float()
        for own, name in names.items()
    }
    sizes = shape.tensor_shapes()
    assert all(tensor.shape == sizes[name] for name, tensor in tensors.items())
    return tensors


def _of_last_layer(policy_folder: Path, name: str) -> str:
    return f"model.layers.{policy_config(policy_folder)['num_hidden_layers'] - 1}.{name}"


def _put(partial: Path, path: Path) -> None:
    sync(partial)
    os.replace(partial, path)


def _read_tensors(folder: Path, key: str) -> dict[str, Tensor]:
    """All tensors of the folder, `layers.0.` and `model.` spelled our way."""
    tensors: dict[str, Tensor] = {}
    paths = sorted(folder.glob("*.safetensors")) or sorted(folder.glob(OLDER_WEIGHTS))
    if not paths:
        raise UserError(f"{key} has no {WEIGHTS}; give a complete draft folder")
    for path in paths:
        try:
            tensors |= _read_file(path)
        except UNREADABLE as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
            raise UserError(f"{key}: {path.name} is damaged ({reason}); restore it") from None
    return {
        name.removeprefix("model.").replace("layers.0.", "midlayer."): tensor
        for name, tensor in tensors.items()
    }


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.name == OLDER_WEIGHTS:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(loaded, dict) or not all(map(torch.is_tensor, loaded.values())):
            raise ValueError("it is no mapping of names to tensors")
        return loaded
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
