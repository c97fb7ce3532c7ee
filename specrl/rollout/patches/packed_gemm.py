"""Packed weights of a tied output layer.

The CPU build computes the output layer from a packed copy of its weight. A reload packs the layers
it loads, and a tied output layer is never loaded by name: its packed copy keeps the old weights.
"""

import torch


def repack(model: torch.nn.Module) -> None:
    """Packs the output layer again, the one that a reload leaves stale."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead) and hasattr(module, "cpu_linear"):
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)
