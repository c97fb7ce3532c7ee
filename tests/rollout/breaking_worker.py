"""An engine that breaks where a test asks for it."""

from typing import Any

from specrl.rollout.worker import EngineWorker


class BreakingWorker(EngineWorker):
    """A real engine with one failure to come."""

    def break_next_load(self, error: Exception) -> None:
        """The next load raises `error` halfway."""
        executor = self._engine.engine_core.engine_core.model_executor
        model = executor.driver_worker.worker.model_runner.get_model()
        load = type(model).load_weights

        def load_half(weights: Any) -> Any:
            del model.load_weights
            items = list(weights)
            load(model, iter(items[: len(items) // 2]))
            raise error

        model.load_weights = load_half

    def break_next(self, method: str, error: Exception) -> None:
        """vLLM's next `method` (of its engine) raises `error`."""

        def fail(*_: Any) -> Any:
            delattr(self._engine, method)
            raise error

        setattr(self._engine, method, fail)
