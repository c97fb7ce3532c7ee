"""Addresses and ports."""

import ipaddress
import socket

CONNECT_S = 2.0


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


def address_of(name: str) -> str:
    """The IP address at which other machines reach this one, which is called `name`.

    Many machines give their own name to loopback; then the outward address counts.
    """
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        found = socket.gethostbyname(name)
    except OSError:
        return outward_address()
    return outward_address() if ipaddress.ip_address(found).is_loopback else found


def free_port(address: str, preferred: int) -> int:
    """`preferred` where nobody listens on it, else any port that is free now."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"{address} has no free port")


def listens(address: str) -> bool:
    """Whether somebody answers at "host:port"."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True
