"""Where the ranks of a learner meet."""

import socket
from typing import Any

import torch.distributed as dist

Store = Any  # torch.distributed.TCPStore, which torch does not export to type checkers


def open_store(world: int) -> Store:
    """A store on a free port of this machine's outward address, held from the start."""
    return _tcp_store(outward_address(), 0, world, is_master=True, wait_for_workers=False)


def join_store(host: str, port: int, world: int) -> Store:
    """The store another rank opened."""
    return _tcp_store(host, port, world, is_master=False)


def outward_address() -> str:
    """The address other machines reach this one at; loopback where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; 192.0.2.1 is reserved for documentation.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def _tcp_store(*args: Any, **kwargs: Any) -> Store:
    return dist.TCPStore(*args, **kwargs)  # type: ignore[attr-defined]  # not in the stubs
