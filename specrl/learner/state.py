"""The learner's part of a checkpoint: one safetensors file per tensor-parallel rank."""

import json
import os
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from specrl.errors import UserError
from specrl.learner.optimizer import PolicyOptimizer

RNG = "rng"


def save_state(path: Path, optimizer: PolicyOptimizer, layout: dict[str, str]) -> None:
    """Master weights, moments, update count and RNG, on disk when it returns."""
    tensors = {name: tensor.cpu() for name, tensor in optimizer.state().items()}
    tensors[RNG] = torch.get_rng_state()
    facts = {**layout, "updates": str(optimizer.updates)}
    save_file(tensors, path, metadata={"facts": json.dumps(facts)})
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def load_state(path: Path, optimizer: PolicyOptimizer, layout: dict[str, str]) -> None:
    """Raises `UserError` when the file is missing or was written under another `layout`."""
    if not path.is_file():
        raise UserError(
            f"the checkpoint has no {path.name}; resume with the learner.tensor_parallel it had"
        )
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
        for key, value in layout.items():
            if facts[key] != value:
                raise UserError(
                    f"the checkpoint was written with {key}={facts[key]}, not {key}={value}; "
                    f"resume with {key}={facts[key]}"
                )
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    torch.set_rng_state(tensors.pop(RNG))
    optimizer.load_state(tensors, int(facts["updates"]))
