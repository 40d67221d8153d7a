"""Ports to listen on when any will do: none that the system gives to clients.

A client that calls a server which has just died may be given the server's own port, and is then
connected to itself; nobody can listen there until a minute after it has noticed. Loopback clients
that try again and again get there soon.
"""

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

CLIENTS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
CLIENTS_FROM_DEFAULT = 49_152  # as the standard has it, and macOS and Windows
LISTENING_FROM = 15_000
TRIES_MAX = 50


def listening_ports() -> Iterator[int]:
    """One after the other, to be tried; the last is 0, by which the system chooses."""
    below = _clients_from()
    if below - LISTENING_FROM > TRIES_MAX:
        yield from random.sample(range(LISTENING_FROM, below), TRIES_MAX)
    yield 0


def free_port(host: str = "127.0.0.1") -> int:
    """One that was free a moment ago."""
    for port in listening_ports():
        with contextlib.suppress(OSError), socket.create_server((host, port)) as held:
            found: int = held.getsockname()[1]
            return found
    raise OSError(f"no port of {host} is free")


def _clients_from() -> int:
    try:
        return int(CLIENTS_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return CLIENTS_FROM_DEFAULT
