"""Runs a service in this process until it is told to stop: uvicorn, on one socket.

Signals are ours: uvicorn would end the process by them before the application is closed.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from millstream.web.limits import URL_BYTES_MAX
from millstream.web.listening import TlsFiles
from millstream.web.service import Service

# What is being answered may end; feeds are told to at once.
STOP_SECONDS_MAX = 5
IDLE_SECONDS_MAX = 30
# The URL, and as much again for headers, before h11 gives up. Beyond it there is no problem+json.
HEAD_BYTES_MAX = 8 * URL_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    host: str
    port: int
    tls: TlsFiles | None = None


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_server(
    make_service: Callable[[], Service], listening: Listening, *, when_ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT. `when_ready` is told the URL, once clients can connect."""
    with _bound(listening) as listener:
        asyncio.run(_serve(make_service, listening, listener, when_ready))


async def _serve(
    make_service: Callable[[], Service],
    listening: Listening,
    listener: socket.socket,
    when_ready: Callable[[str], None],
) -> None:
    service = make_service()
    server = _Server(_config(service, listening))

    def stop() -> None:
        server.should_exit = True
        service.serving.closing.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    when_ready(_url(listening, listener))  # the socket listens: who connects now is served soon
    await serving


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
    with socket.create_server((listening.host, listening.port), family=family) as listener:
        yield listener


def _url(listening: Listening, listener: socket.socket) -> str:
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{'http' if listening.tls is None else 'https'}://{host}:{listener.getsockname()[1]}"
