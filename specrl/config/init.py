"""Where a learned draft's first weights come from."""

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass(kw_only=True)
class InitConfig:
    """`none` is the only choice for drafters that specrl does not train."""

    name: str = MISSING
    """none: nothing to initialise."""
