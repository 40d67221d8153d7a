"""Sockets that ask a server for as much as it gives: connections that say little, and slowly."""

import contextlib
import resource
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence

WITHIN_S = 30.0
ROOM_FOR_FILES = 4_096


def take_files() -> None:
    """This process holds the other end of each connection. It is never left with less than before:
    other tests follow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ROOM_FOR_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, ROOM_FOR_FILES), hard))


@contextlib.contextmanager
def connections(
    address: tuple[str, int], number: int, said: bytes = b"", *, source: str = "127.0.0.1"
) -> Iterator[list[socket.socket]]:
    """As many, each of which has said the same; a server may have ended some of them already."""
    take_files()
    with contextlib.ExitStack() as opened:
        made = []
        for _ in range(number):
            one = opened.enter_context(
                socket.create_connection(address, timeout=WITHIN_S, source_address=(source, 0))
            )
            made.append(one)
            say(one, said)
        yield made


def say(one: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the server ended it
        one.sendall(data)


def is_ended(one: socket.socket) -> bool:
    """Whether the server has ended it; what it said before is read."""
    poller = select.poll()
    poller.register(one, select.POLLIN)
    try:
        while poller.poll(0):
            if one.recv(65_536) == b"":
                return True
    except OSError:
        return True
    return False


def all_end(
    those: Sequence[socket.socket], *, within_s: float = WITHIN_S, drip: bytes = b""
) -> bool:
    """Whether the server ends all of them, though they say one thing after the other."""
    left, deadline = list(those), time.monotonic() + within_s
    while left and time.monotonic() < deadline:
        for one in left:
            say(one, drip)
        time.sleep(0.1)
        left = [one for one in left if not is_ended(one)]
    return not left


def ask(
    address: tuple[str, int],
    text: str,
    *,
    source: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> str:
    """The whole answer to a request, by a connection of its own."""
    with contextlib.ExitStack() as opened:
        plain = socket.create_connection(address, timeout=WITHIN_S, source_address=(source, 0))
        one = opened.enter_context(plain)
        if tls is not None:
            one = opened.enter_context(tls.wrap_socket(plain, server_hostname="localhost"))
        one.sendall(text.encode())
        return read_to_end(one.recv).decode("latin-1")


def read_to_end(read: Callable[[int], bytes]) -> bytes:
    came = bytearray()
    while part := read(65_536):
        came += part
    return bytes(came)


def get(path: str, *headers: str) -> str:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    return "\r\n".join(lines) + "\r\n\r\n"


def post(path: str, body: str, *headers: str, length: int | None = None) -> str:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join(lines) + f"\r\n\r\n{body}"
