"""An engine that breaks where a test asks for it."""

from collections.abc import Iterable
from typing import Any

from specrl.rollout.patches import packed_gemm
from specrl.rollout.records import FinishedSample
from specrl.rollout.worker import EngineWorker


class BreakingWorker(EngineWorker):
    """A real engine with one failure to come."""

    _reused = 0

    def reused_tokens(self) -> int:
        """Most prompt tokens that a request found in the prefix cache since this was last asked."""
        reused, self._reused = self._reused, 0
        return reused

    def _receive(self, output: Any) -> Iterable[FinishedSample]:
        self._reused = max(self._reused, output.num_cached_tokens or 0)
        return super()._receive(output)

    def break_next_load(self, error: Exception, which: str = "policy") -> None:
        """The next load of that model raises `error` halfway."""
        model = self._runner().get_draft_model() if which == "draft" else self._runner().get_model()
        load = type(model).load_weights

        def load_half(weights: Any) -> Any:
            del model.load_weights
            items = list(weights)
            load(model, iter(items[: len(items) // 2]))
            raise error

        model.load_weights = load_half

    def skip_next_repacking(self) -> None:
        """The next load leaves the output layer as vLLM's own reload leaves it."""
        repack = packed_gemm.repack

        def skip(_: Any) -> None:
            packed_gemm.repack = repack

        packed_gemm.repack = skip

    def lose_when_loading(self, name: str) -> None:
        """The next load of the draft leaves out a tensor without a word."""
        model = self._runner().get_draft_model()
        load = type(model).load_weights

        def load_the_rest(weights: Any) -> Any:
            del model.load_weights
            return load(model, iter([item for item in weights if item[0] != name]))

        model.load_weights = load_the_rest

    def zero_draft(self, part: str) -> None:
        """Zeroes the live weights of a layer as a wake-up from sleep may."""
        import torch
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        layer = self._runner().get_draft_model().get_submodule(part)
        if not hasattr(layer, "cpu_linear"):
            layer.weight.data.zero_()
            return
        outputs = getattr(layer, "output_size", None) or layer.num_embeddings
        inputs = getattr(layer, "input_size", None) or layer.embedding_dim
        zeros = torch.nn.Parameter(torch.zeros(outputs, inputs), requires_grad=False)
        held, layer.weight = layer.weight, zeros
        dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
        layer.weight = held

    def _runner(self) -> Any:
        executor = self._engine.engine_core.engine_core.model_executor
        return executor.driver_worker.worker.model_runner

    def break_next(self, method: str, error: Exception) -> None:
        """vLLM's next `method` (of its engine) raises `error`."""

        def fail(*_: Any) -> Any:
            delattr(self._engine, method)
            raise error

        setattr(self._engine, method, fail)
