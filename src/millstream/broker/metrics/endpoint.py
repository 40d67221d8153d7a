"""Serves the metrics by HTTP, on the broker's loop: GET /metrics and GET /healthz.

Each connection has one request and one answer, a few seconds, and a place among a few, of which
one address has a quarter at most: whatever comes by it costs the broker little. Where no place is
left, /healthz is answered all the same, to who asks at once. There is no login, so it listens on
loopback unless a setting says otherwise in words. It only reads.
"""

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus

from millstream.base.client_address import address_key
from millstream.base.errors import Rejected
from millstream.broker.metrics.exposition import Exposition
from millstream.broker.metrics.http_request import (
    END_OF_HEAD,
    HEAD_BYTES_MAX,
    HttpRequest,
    RefusedRequest,
    answer,
    read_request,
)
from millstream.broker.node import Node
from millstream.broker.security.listening import Listener

logger = logging.getLogger(__name__)

# As many again have a moment to ask for /healthz.
CONNECTIONS_MAX = 32
ADDRESS_PART = 4
# For the request to come, and for the answer to be taken.
HEAD_SECONDS_MAX = 5.0
HURRIED_SECONDS_MAX = 1.0
ANSWER_SECONDS_MAX = 30.0
LOOP_CHECK_SECONDS = 0.5
HEALTH = "/healthz"
# What the setting must say.
OPEN_METRICS = "anyone-on-the-network-may-read-the-metrics"


class MetricsBeyondLoopback(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"metrics on {host}:{port} can be read from other machines, without a login: names of "
            "topics and groups, and how much goes through them. Serve them on 127.0.0.1, or say "
            f"that this is wanted: open_metrics = {OPEN_METRICS!r}"
        )
        self.host, self.port = host, port


class CannotServeMetrics(Rejected):
    def __init__(self, *, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"metrics cannot be served on {host}:{port}: {reason}; choose another address "
            "(--metrics-listen), or none"
        )
        self.host, self.port, self.reason = host, port, reason


def check_may_listen(host: str, port: int, *, open_metrics: str) -> None:
    if not Listener(host=host, port=port).is_loopback and open_metrics != OPEN_METRICS:
        raise MetricsBeyondLoopback(host=host, port=port)


class Places:
    """Connections at one time, in all and by address."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    def has_room(self, address: str) -> bool:
        is_free = self._held.total() < CONNECTIONS_MAX
        return is_free and self._held[address] < CONNECTIONS_MAX // ADDRESS_PART

    @contextlib.contextmanager
    def held(self, address: str) -> Iterator[None]:
        self._held[address] += 1
        try:
            yield
        finally:
            self._held[address] -= 1
            self._held += Counter()  # drops addresses that hold none


class MetricsEndpoint:
    """Listens from `start` to `stop`. Owned by the broker's loop."""

    def __init__(self, node: Node, *, is_healthy: Callable[[], bool]) -> None:
        self._node = node
        self._is_healthy = is_healthy
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._places, self._hurried = Places(), Places()
        self._watch: asyncio.Task[None] | None = None
        # One scrape at a time: however many ask, clients of the broker get their turns.
        self._turn = asyncio.Lock()

    async def start(self, host: str, port: int) -> str:
        """Listen; where, with the port that the system chose if it was 0."""
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            # The resolver's errors have numbers of their own, which are negative.
            is_system = error.errno is not None and error.errno > 0
            reason = os.strerror(error.errno or 0) if is_system else "no such host"
            raise CannotServeMetrics(host=host, port=port, reason=reason) from error
        self._watch = asyncio.ensure_future(self._watch_loop())
        port = self._server.sockets[0].getsockname()[1]
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    async def stop(self) -> None:
        """Nobody is waited for: a scrape that is cut off is a scrape that failed."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._open, *([self._watch] if self._watch is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_loop(self) -> None:
        """Something is due twice a second: how much later does it come?"""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_CHECK_SECONDS
            await asyncio.sleep(LOOP_CHECK_SECONDS)
            self._node.metrics.loop_delays.observe(max(0.0, loop.time() - due))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        address = address_key(str(peer[0])) if peer else ""
        try:
            await self._answer_at_a_place(reader, writer, address)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # nobody is left who could be told
        finally:
            writer.transport.abort()

    async def _answer_at_a_place(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> None:
        if self._places.has_room(address):
            with self._places.held(address):
                await _send(writer, await self._answer(reader))
        elif self._hurried.has_room(address):
            with self._hurried.held(address):
                await _send(writer, await self._answer(reader, is_hurried=True))
        else:
            await _send(writer, _refusal(HTTPStatus.SERVICE_UNAVAILABLE))

    async def _answer(self, reader: asyncio.StreamReader, *, is_hurried: bool = False) -> bytes:
        method = "GET"
        seconds_max = HURRIED_SECONDS_MAX if is_hurried else HEAD_SECONDS_MAX
        try:
            request = await _read_request(reader, seconds_max)
            method = request.method
            if is_hurried and request.path != HEALTH:
                raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE)
            return await self._find_answer(request)
        except RefusedRequest as refused:
            return _refusal(refused.status, method=method)

    async def _find_answer(self, request: HttpRequest) -> bytes:
        if request.path == "/metrics":
            return await self._metrics(request)
        if request.path != HEALTH:
            raise RefusedRequest(HTTPStatus.NOT_FOUND)
        if not self._is_healthy():
            raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE)
        return answer(HTTPStatus.OK, b"ok\n", method=request.method)

    async def _metrics(self, request: HttpRequest) -> bytes:
        exposition = Exposition(self._node, request.headers.get("accept", ""))
        try:
            text = await self._text(exposition)
        except Exception:  # a defect of ours: the broker goes on, and Prometheus shows the gap
            logger.exception("the metrics could not be read")
            raise RefusedRequest(HTTPStatus.INTERNAL_SERVER_ERROR) from None
        return answer(
            HTTPStatus.OK, text, content_type=exposition.content_type, method=request.method
        )

    async def _text(self, exposition: Exposition) -> bytes:
        slices = []
        async with self._turn:
            for some in exposition.slices():
                slices.append(some)
                await asyncio.sleep(0)
        return b"".join(slices)


async def _send(writer: asyncio.StreamWriter, text: bytes) -> None:
    writer.write(text)
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _refusal(status: HTTPStatus, *, method: str = "GET") -> bytes:
    return answer(status, f"{status.phrase}\n".encode(), method=method)


async def _read_request(reader: asyncio.StreamReader, seconds_max: float) -> HttpRequest:
    try:
        async with asyncio.timeout(seconds_max):
            head = await reader.readuntil(END_OF_HEAD)
    except TimeoutError:
        raise RefusedRequest(HTTPStatus.REQUEST_TIMEOUT) from None
    except asyncio.LimitOverrunError:
        raise RefusedRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    return read_request(head)
