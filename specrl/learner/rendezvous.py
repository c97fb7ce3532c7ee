"""Where the ranks of a learner meet."""

from typing import Any

import torch.distributed as dist

from specrl.network import outward_address

Store = Any  # torch.distributed.TCPStore, which torch does not export to type checkers


def open_store(world: int) -> Store:
    """A store on a free port of this machine's outward address, held from the start."""
    return _tcp_store(outward_address(), 0, world, is_master=True, wait_for_workers=False)


def join_store(host: str, port: int, world: int) -> Store:
    """The store another rank opened."""
    return _tcp_store(host, port, world, is_master=False)


def _tcp_store(*args: Any, **kwargs: Any) -> Store:
    return dist.TCPStore(*args, **kwargs)  # type: ignore[attr-defined]  # not in the stubs
