"""Listens on one address and brings clients in: counts them, and shakes hands if there is TLS.

    socket ──accept──> Admission ──TLS handshake──> Connection

asyncio's own servers say nothing of a handshake that fails, and count nobody before it is over.
What is spoken afterwards is `connection.py`'s.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable

from millstream.base.errors import Rejected
from millstream.base.listening_ports import listening_ports
from millstream.broker.access.admission import Admission, NoRoom, Place
from millstream.broker.access.complaints import Complaints

logger = logging.getLogger(__name__)

BACKLOG = 512
# Accepted in one turn of the loop, so that a flood of clients does not stop those that are in.
ACCEPTED_AT_ONCE_MAX = 64
TLS_HANDSHAKE_SECONDS_MAX = 10.0
TLS_SHUTDOWN_SECONDS_MAX = 5.0
# Without a free file descriptor accept fails at once, again and again: wait a little.
RETRY_SECONDS = 1.0


class AddressInUse(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} is in use by another process; stop that one, or listen elsewhere "
            "(--listen)"
        )
        self.host, self.port = host, port


class CannotListen(Rejected):
    def __init__(self, *, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}")
        self.host, self.port, self.reason = host, port, reason


class Acceptor:
    """Owned by the broker's loop. `tls` may be replaced: new clients get the new one.

    `serve` makes the protocol of a client, which leaves its place when the connection is lost.
    """

    def __init__(
        self,
        serve: Callable[[Place], asyncio.BufferedProtocol],
        *,
        admission: Admission,
        complaints: Complaints,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._serve = serve
        self._admission = admission
        self._complaints = complaints
        self.tls = tls
        self._sockets: list[socket.socket] = []
        self._greetings: set[asyncio.Task[None]] = set()
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Port 0: any that is free, and stays so while the broker starts again."""
        loop = asyncio.get_running_loop()
        for tried in [port] if port else listening_ports():
            try:
                await self._bind(host, tried)
                break
            except OSError as error:
                self.close()
                if port == 0 and tried and error.errno == errno.EADDRINUSE:
                    continue
                raise _cannot_listen(host, port, error) from error
        self.port = self._sockets[0].getsockname()[1]
        for listening in self._sockets:
            loop.add_reader(listening, self._accept, listening)

    async def _bind(self, host: str, port: int) -> None:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            self._sockets.append(_bound(family, address))

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets = []
        for greeting in self._greetings:
            greeting.cancel()

    # --- clients ------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                client, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listening, error)
                return
            self._admit(client, str(address[0]), int(address[1]))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """Those that are connected go on; the others wait in the system's queue."""
        logger.error("no more connections for the moment: %s", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(RETRY_SECONDS, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _admit(self, client: socket.socket, host: str, port: int) -> None:
        try:
            place = self._admission.enter(host)
        except NoRoom as refusal:
            self._complain((host, port), str(refusal))
            client.close()
            return
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = asyncio.ensure_future(self._greet(client, place, (host, port)))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    async def _greet(self, client: socket.socket, place: Place, who: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        limits = {
            "ssl_handshake_timeout": TLS_HANDSHAKE_SECONDS_MAX,
            "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS_MAX,
        }
        try:
            await loop.connect_accepted_socket(
                lambda: self._serve(place), client, ssl=self.tls, **(limits if self.tls else {})
            )
        except BaseException as error:
            place.leave()
            client.close()
            if not isinstance(error, OSError):  # SSLError and timeouts are some
                raise
            if reason := _handshake_failure(error):
                self._complain(who, reason)

    def _complain(self, who: tuple[str, int], reason: str) -> None:
        host, port = who
        if line := self._complaints.about(host, reason):
            logger.warning("connection %s:%d closed: %s", host, port, line)


# By OpenSSL's name: what a client has done, or what it thinks of our certificate.
REASONS = {
    "HTTP_REQUEST": "an HTTP request on a port that speaks TLS and Kafka's protocol",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS (security.protocol=SSL or SASL_SSL)",
    "UNKNOWN_PROTOCOL": "the client does not speak TLS (security.protocol=SSL or SASL_SSL)",
    "UNSUPPORTED_PROTOCOL": "the client's TLS is too old: 1.2 or 1.3",
    "NO_SHARED_CIPHER": "the client offers no cipher that is safe",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust our certificate (ssl.ca.location)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired, says the client",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate (ssl.certificate.location)",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not accepted",
}


def _handshake_failure(error: OSError) -> str | None:
    """None for a client that only looked whether somebody listens: that is no news."""
    if isinstance(error, ssl.SSLError) and error.reason:
        told = REASONS.get(error.reason, error.reason.lower().replace("_", " "))
        return f"the TLS handshake failed: {told}"
    if isinstance(error, TimeoutError | ConnectionAbortedError):  # asyncio's, and uvloop's
        return f"no TLS handshake within {TLS_HANDSHAKE_SECONDS_MAX:.0f} s"
    return None


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _cannot_listen(host: str, port: int, error: OSError) -> Rejected:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(host=host, port=port)
    # The resolver's errors have numbers of their own, which are negative.
    is_system = error.errno is not None and error.errno > 0
    reason = os.strerror(error.errno or 0) if is_system else "no such host"
    return CannotListen(host=host, port=port, reason=reason)
