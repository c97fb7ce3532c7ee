"""An engine round another one."""

from specrl.protocols import RolloutEngine
from specrl.types import WeightSnapshot


class WrappedEngine:
    """Hands on what a `RolloutEngine` round `engine` does not change."""

    def __init__(self, engine: RolloutEngine) -> None:
        self._engine = engine

    @property
    def version(self) -> int | None:
        """Version of the live weights."""
        return self._engine.version

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        self._engine.load_weights(snapshot)

    def close(self) -> None:
        self._engine.close()
