"""Runs a service in this process until it is told to stop: uvicorn, on one socket.

In the main thread (`run_server`), or beside what the main thread does (`server_beside`). Signals
are ours: uvicorn would end the process by them before the application is closed.
"""

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import uvicorn

from millstream.base.errors import Rejected
from millstream.base.file_limit import raise_file_limit
from millstream.web.acceptor import Acceptor
from millstream.web.connections import Connections, Place
from millstream.web.limits import URL_BYTES_MAX, Limits, connections_for
from millstream.web.listening import TlsFiles
from millstream.web.service import Service
from millstream.web.watched_protocol import WatchedProtocol

# What is being answered may end; feeds are told to at once.
STOP_SECONDS_MAX = 5
IDLE_SECONDS_MAX = 30
# A service is made in milliseconds; the machine may be busy.
START_SECONDS_MAX = 60
# The URL, and as much again for headers, before h11 gives up. Beyond it there is no problem+json.
HEAD_BYTES_MAX = 8 * URL_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    host: str
    port: int
    tls: TlsFiles | None = None


class AddressTaken(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} is in use by another process; stop that one, or listen elsewhere "
            f"(--listen {host}:0 takes any free port)"
        )
        self.host, self.port = host, port


class _Server(uvicorn.Server):
    """uvicorn, over connections that are accepted, bounded and watched by us."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        total_max = connections_for(limits.connections_max, raise_file_limit())
        of_address_max = min(limits.connections_per_address_max, total_max)
        self._connections = Connections(total_max, of_address_max)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            acceptor = Acceptor(
                listener,
                self._connections,
                self._protocol,
                tls=self.config.ssl,
                handshake_seconds=self._limits.head_ms_max / 1000,
            )
            acceptor.start()
            self.servers = [acceptor]  # type: ignore[list-item]  # it only closes them
        self.started = True

    def _protocol(self, place: Place) -> WatchedProtocol:
        return WatchedProtocol(
            self.config,
            self.server_state,
            place=place,
            head_seconds=self._limits.head_ms_max / 1000,
        )


Stop = Callable[[], None]


def run_server(
    make_service: Callable[[], Service], listening: Listening, *, when_ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT. `when_ready` is told the URL, once clients can connect."""
    with _bound(listening) as listener:

        def ready(stop: Stop) -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            when_ready(_url(listening, listener))

        asyncio.run(_serve(make_service, listening, listener, ready))


@contextlib.contextmanager
def server_beside(make_service: Callable[[], Service], listening: Listening) -> Iterator[str]:
    """Serve by a thread of its own while this is open; yields the URL."""
    started: Future[Stop] = Future()

    def ready(stop: Stop) -> None:
        loop = asyncio.get_running_loop()

        def stop_from_outside() -> None:
            loop.call_soon_threadsafe(stop)

        started.set_result(stop_from_outside)

    def serve(listener: socket.socket) -> None:
        try:
            asyncio.run(_serve(make_service, listening, listener, ready))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    with _bound(listening) as listener:
        thread = threading.Thread(target=serve, args=(listener,), name="web", daemon=True)
        thread.start()
        stop = started.result(START_SECONDS_MAX)
        try:
            yield _url(listening, listener)
        finally:
            if thread.is_alive():
                stop()
            thread.join(2 * STOP_SECONDS_MAX)


async def _serve(
    make_service: Callable[[], Service],
    listening: Listening,
    listener: socket.socket,
    ready: Callable[[Stop], None],
) -> None:
    service = make_service()
    server = _Server(_config(service, listening), service.serving.limits)

    def stop() -> None:
        server.should_exit = True
        service.serving.closing.set()

    serving = asyncio.create_task(server.serve(sockets=[listener]))
    ready(stop)  # the socket listens: who connects now is served soon
    try:
        await serving
    finally:
        if service.watch is not None:
            await asyncio.to_thread(service.watch.stop)


def _config(service: Service, listening: Listening) -> uvicorn.Config:
    tls = listening.tls
    return uvicorn.Config(
        service.asgi,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ssl_certfile=None if tls is None else str(tls.certificate),
        ssl_keyfile=None if tls is None else str(tls.key),
    )


@contextlib.contextmanager
def _bound(listening: Listening) -> Iterator[socket.socket]:
    """Here, so that an address in use is an error of ours, and not uvicorn's exit."""
    family, *_ = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM)[0]
    try:
        listener = socket.create_server((listening.host, listening.port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(host=listening.host, port=listening.port) from None
        raise
    with listener:
        yield listener


def _url(listening: Listening, listener: socket.socket) -> str:
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{'http' if listening.tls is None else 'https'}://{host}:{listener.getsockname()[1]}"
