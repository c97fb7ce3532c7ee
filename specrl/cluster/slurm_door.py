"""How the tasks of a job notice at once that one of them died: a connection held by each pair."""

import hmac
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

DONE = b"done\n"
HELLO_S = 10.0
HELLO_BYTES = 4096
CONNECT_S = 30.0
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # seconds, seconds, probes


class Door:
    """Of the first task: every other task connects, and holds the connection while it lives.

    `lost(rank)` is called, in a thread of the door, when one is gone before `close`.
    """

    def __init__(self, address: str, token: str, lost: Callable[[int], None]) -> None:
        self._token = token
        self._lost = lost
        self._closing = False
        self._guests: list[socket.socket] = []
        self._socket = socket.create_server((address, 0))
        self.address = f"{address}:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Tells every task that the job is done; safe to call twice."""
        self._closing = True
        for guest in [*self._guests]:
            _dismiss(guest)
        with suppress(OSError):  # which wakes the thread that waits for guests
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                guest, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._hold, args=(guest,), daemon=True).start()

    def _hold(self, guest: socket.socket) -> None:
        rank = self._welcome(guest)
        if rank is None:
            guest.close()
            return
        self._guests.append(guest)
        if self._closing:
            _dismiss(guest)
        with suppress(OSError):
            guest.recv(1)  # nothing comes: it returns when the other end is gone
        if not self._closing:
            self._lost(rank)

    def _welcome(self, guest: socket.socket) -> int | None:
        """Rank of the guest; None for a stranger."""
        guest.settimeout(HELLO_S)
        try:
            hello = json.loads(guest.recv(HELLO_BYTES))
            known = hmac.compare_digest(str(hello["token"]), self._token)
            rank = int(hello["rank"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        guest.settimeout(None)
        _notice_dead_hosts(guest)
        return rank if known else None


class DoorKey:
    """Of every other task: the connection to the first one's door."""

    def __init__(self, address: str, token: str, rank: int) -> None:
        """Raises OSError when nobody is there."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=CONNECT_S)
        _notice_dead_hosts(self._socket)
        self._socket.sendall(json.dumps({"token": token, "rank": rank}).encode())

    def wait(self, seconds: float) -> bool | None:
        """True: the job is done. False: the first task is gone. None: neither within `seconds`."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(len(DONE)) == DONE
        except TimeoutError:
            return None
        except OSError:
            return False


def _dismiss(guest: socket.socket) -> None:
    with suppress(OSError):
        guest.sendall(DONE)


def _notice_dead_hosts(connection: socket.socket) -> None:
    """A process that dies closes its connections; a host without power does not."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
