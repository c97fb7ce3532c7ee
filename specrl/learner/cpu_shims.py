"""What lets Megatron-core run where there is no CUDA. Process-wide: a learner owns its process.

Megatron-core 0.16.1 names the device "cuda" and asks `torch.cuda` for the device and its random
state in places that a model on the CPU reaches too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def install() -> None:
    """Points the parts of `torch.cuda` that Megatron-core uses at the CPU; a no-op with CUDA."""
    if torch.cuda.is_available():
        return
    from megatron.core.tensor_parallel import random as megatron_random

    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.synchronize = lambda *_: None
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.manual_seed = torch.manual_seed
    random: Any = megatron_random
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


@contextmanager
def on_this_device() -> Iterator[None]:
    """Inside, Megatron-core's "cuda" means the CPU where there is no CUDA."""
    if torch.cuda.is_available():
        yield
        return
    with _CudaMeansCpu():
        yield


class _CudaMeansCpu(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.cuda:
            return args[0]
        if func is Tensor.type and len(args) == 1 and not kwargs:
            # Megatron compares parameter types with "torch.cuda.FloatTensor".
            return func(*args).replace("torch.", "torch.cuda.")
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)
