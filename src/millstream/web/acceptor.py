"""Accepts connections for the HTTP server: each gets a place before anything is said.

    listener ──accept──> Connections ──TLS handshake──> WatchedProtocol

asyncio's own servers count nobody before a handshake is over, and write a traceback for each accept
that finds no free file.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from millstream.base.rare_lines import RareLines
from millstream.web.connections import Connections, Place

logger = logging.getLogger(__name__)
logger.addFilter(RareLines(time.monotonic))

BACKLOG = 1_024
# In one turn of the loop. What a client sent with its connection is read some turns later: a flood
# must not take the places of so many turns.
ACCEPTED_AT_ONCE_MAX = 16
# Without a free file accept fails at once, again and again: some connections go, then it is tried.
RETRY_SECONDS = 0.25
ENDED_FOR_FILES = 8
NO_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Owned by the server's loop; uvicorn closes it as it would close asyncio's server."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        serve: Callable[[Place], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._listener, self._connections, self._serve = listener, connections, serve
        self._tls, self._handshake_seconds = tls, handshake_seconds
        self._greetings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            asyncio.get_running_loop().remove_reader(self._listener)
        for greeting in self._greetings:
            greeting.cancel()

    async def wait_closed(self) -> None:
        """Closed is closed: what is connected is uvicorn's to wait for."""

    # --- clients ------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                client, (host, *_) = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_FILES:
                    raise
                self._make_files(error)
                return
            self._admit(client, str(host))

    def _make_files(self, error: OSError) -> None:
        """Those that wait longest go; new ones wait in the system's queue meanwhile."""
        logger.warning(
            "no more connections for the moment: %s; the oldest that wait are closed. Raise the "
            "limit of open files (ulimit -n), or lower connections_max",
            error.strerror,
        )
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        for _ in range(ENDED_FOR_FILES):
            self._connections.end_oldest()
        loop.call_later(RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _admit(self, client: socket.socket, host: str) -> None:
        place = self._connections.enter(host)
        if place is None:
            logger.warning("a connection from %s closed: there is no place left", host)
            client.close()
            return
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = asyncio.get_running_loop().create_task(self._greet(client, place))
        place.end = greeting.cancel
        self._greetings.add(greeting)
        greeting.add_done_callback(lambda _: self._greeted(greeting, client))

    def _greeted(self, greeting: asyncio.Task[None], client: socket.socket) -> None:
        self._greetings.discard(greeting)
        if greeting.cancelled():  # before its first step, in which nothing could close it
            client.close()

    async def _greet(self, client: socket.socket, place: Place) -> None:
        limits: dict[str, Any] = {}
        if self._tls is not None:
            limits = {"ssl": self._tls, "ssl_handshake_timeout": self._handshake_seconds}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._serve(place), client, **limits
            )
        except BaseException as error:
            place.leave()
            client.close()
            # A client that speaks no TLS, or nothing in time, is no news; to be cancelled neither.
            if not isinstance(error, OSError | asyncio.CancelledError):
                raise
