"""One client connection: cuts frames off the socket, calls handlers, sends answers in order.

Whatever the client does wrong ends this connection with one line in the diagnostics, and nothing
else. It is not read while it has too many unanswered requests, does not take its answers, or
must wait for memory, for the disk or for its quota: the client feels that, and nothing is dropped.

The effects of requests are in the order of the requests, too. As in Kafka, a connection handles
one request at a time, and the next one when that is answered. Only Produce requests go ahead:
their records are appended as they arrive, and several wait for the same sync.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from time import perf_counter
from typing import Any, cast

from millstream.base.errors import MillstreamError
from millstream.broker.access.admission import Place
from millstream.broker.access.client_quotas import (
    FETCH,
    FETCHES,
    PRODUCE,
    told,
)
from millstream.broker.access.connection_login import LOGIN_FRAME_BYTES_MAX, ConnectionLogin
from millstream.broker.access.connection_throttle import ConnectionThrottle
from millstream.broker.connection_ends import certified_principal, has_hung_up, peer_of
from millstream.broker.handlers import HANDLERS, Call, Handler, Later, Peer
from millstream.broker.node import Node
from millstream.broker.request_memory import LargeRequest
from millstream.broker.wire import (
    ApiKey,
    Buffer,
    ErrorCode,
    MalformedMessage,
    Message,
    RequestHeader,
    decode_from,
    encode_response,
    read_request_header,
)
from millstream.broker.wire.messages.api_versions import ApiVersionsResponse
from millstream.broker.wire.messages.fetch import FetchResponse

logger = logging.getLogger(__name__)

# Requests up to this size share the connection's buffer; a larger one gets its own.
RECEIVE_BYTES = 32 << 10
FRAME_SIZE = struct.Struct(">I")  # the protocol's int32; a negative one reads as > 2 GiB
SIZE_BYTES = FRAME_SIZE.size
API_KEY = struct.Struct(">h")  # the first field of a request
# How long one connection may keep the loop with requests that came at once: then the others go on.
# ApiVersions is 15 bytes long and needs no login.
TURN_SECONDS_MAX = 0.01
# Answers that the client does not take: past the first the connection is not read any more.
WRITE_BUFFER_HIGH_BYTES = 1 << 20


# The four bytes that TLS begins with, read as a size: a record of a handshake, 1.0 to 1.3.
TLS_HELLO_SIZES = range(0x16030000, 0x16030500)


# Of a message that comes without a request around it.
NO_HEADER = RequestHeader(int(ApiKey.SASL_AUTHENTICATE), -1, -1, None, -1)


class Slot:
    """The place of one answer in the order of the requests."""

    __slots__ = ("chunks", "has_effect", "header", "received_s", "throttle_ms")

    def __init__(self, header: RequestHeader, received_s: float, throttle_ms: int = 0) -> None:
        self.header = header
        self.received_s = received_s
        self.throttle_ms = throttle_ms
        self.chunks: list[Buffer] | None = None
        # Whether the request has changed all that it will change.
        self.has_effect = False

    @property
    def lets_writes_follow(self) -> bool:
        """Whether a Produce request may be handled before this one is answered."""
        return self.has_effect and self.header.api_key == PRODUCE


class Connection(asyncio.BufferedProtocol):
    """Owned by the loop; `node.connections` holds it while it is open."""

    def __init__(self, node: Node, place: Place | None = None) -> None:
        self._node = node
        self._place = place
        self.login = ConnectionLogin(node.logins, "?")
        self._has_login = node.logins.are_required
        self._transport: asyncio.Transport | None = None
        self.peer = Peer("?", 0, "?", 0)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._start = 0
        self._end = 0
        self._large: LargeRequest | None = None
        self._slots: deque[Slot] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._waits_for_memory = False
        self._waits_for_sync = False
        self._waits_for_turn = False
        self._throttle = ConnectionThrottle(
            node.quotas, now_ms=node.now_ms, when_heard=self._resume
        )
        self._is_ending = False
        self._is_closing = False
        self._limit_frames()
        self._in_flight_max = node.config.requests_in_flight_max
        self.made_ms = self.active_ms = node.now_ms()
        self._has_asked = False
        self._counts = node.metrics.apis
        self._says_each_request = logger.isEnabledFor(logging.DEBUG)

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_of(transport, self._node.config.advertised)
        by_certificate = certified_principal(transport)
        self.login = ConnectionLogin(self._node.logins, self.peer.host, principal=by_certificate)
        self._node.admit(self)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None:  # a client that vanished must not hold a long poll for ever
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large.room()
        if self._end == len(self._buffer):
            # A part of a frame at the very end: move it to the front. `_take_frames` has made
            # sure that the whole frame fits.
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        self.active_ms = self._node.now_ms()
        if self._large is None:
            self._end += count
        else:
            self._large.note_received(count)
            if not self._large.is_whole:
                return
            frame = self._large.content
            self._drop_large()
            self._handle(frame)
        self._take_frames()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self._node.dismiss(self)
        self._throttle.close()
        if self._place is not None:
            self._place.leave()
        self._drop_large()
        for task in self._tasks:  # long polls: nobody waits for them any more
            task.cancel()
        self._slots.clear()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._resume()

    # --- frames -------------------------------------------------------------------------------

    def _take_frames(self) -> None:
        """Handle every whole frame in the buffer, as long as there is room for its answer."""
        turn_ends_s = perf_counter() + TURN_SECONDS_MAX
        while not self._is_closing and self._large is None:
            available = self._end - self._start
            if available < SIZE_BYTES:
                break
            if self._must_wait:
                self._pause()
                return
            start = self._start + SIZE_BYTES
            (size,) = FRAME_SIZE.unpack_from(self._buffer, self._start)
            if size > self._frame_bytes_max:
                self._refuse_size(size)
                return
            if available < SIZE_BYTES + min(size, API_KEY.size):
                break  # whether it must wait is not known yet
            if available < SIZE_BYTES + size:
                if size > RECEIVE_BYTES - SIZE_BYTES:
                    self._start_large(size)
                break
            self._start = start + size
            self._handle(self._buffer[start : self._start])
            if perf_counter() > turn_ends_s:
                self._wait_for_turn()
        if self._start == self._end:
            self._start = self._end = 0

    def _limit_frames(self) -> None:
        limit = self._node.config.frame_bytes_max
        self._frame_bytes_max = limit if self.login.is_done else min(limit, LOGIN_FRAME_BYTES_MAX)

    def _note_login(self) -> None:
        """It may be over: larger requests are taken then, and the place is a settled one."""
        self._limit_frames()
        if self.login.is_done and self._place is not None:
            self._place.settle()

    def _refuse_size(self, size: int) -> None:
        if size in TLS_HELLO_SIZES and self._node.config.tls is None:
            self._reject("a TLS handshake, on a port without TLS (security.protocol)")
            return
        which = "frame_bytes_max" if self.login.is_done else "before the login"
        limit = self._frame_bytes_max
        self._reject(f"a request of {size} bytes, the limit is {limit} ({which})")

    def _start_large(self, size: int) -> None:
        if not self._node.request_memory.take(size):
            self._waits_for_memory = True
            self._node.request_memory.when_free(self._memory_is_free)
            self._pause()
            return
        self._large = LargeRequest(size, self._buffer[self._start + SIZE_BYTES : self._end])
        self._start = self._end = 0

    def _memory_is_free(self) -> None:
        self._waits_for_memory = False
        self._resume()

    def _drop_large(self) -> None:
        if self._large is not None:
            size, self._large = self._large.size, None
            self._node.request_memory.give_back(size)

    @property
    def is_in_frame(self) -> bool:
        """Whether a part of a request has arrived and the rest has not."""
        return self._large is not None or self._start < self._end

    @property
    def has_asked(self) -> bool:
        """Whether a request came, or a large one is on its way."""
        return self._has_asked or self._large is not None

    @property
    def has_open_requests(self) -> bool:
        return bool(self._slots)

    @property
    def waits_for_us(self) -> bool:
        """Whether it is our doing that nothing more is read."""
        return self._waits_for_memory or self._waits_for_sync or self._throttle.is_muted

    @property
    def is_not_read(self) -> bool:
        """For whatever reason; a request may wait behind a long poll. The end is not noticed."""
        return self._is_reading_paused

    # --- when to read -------------------------------------------------------------------------

    @property
    def _must_wait(self) -> bool:
        return (
            self._is_writing_paused
            or self._waits_for_sync
            or self._waits_for_memory
            or self._waits_for_turn
            or self._throttle.is_muted
            or self._is_ending
            or len(self._slots) >= self._in_flight_max
            or (bool(self._slots) and self._is_next_in_line)
        )

    @property
    def _is_next_in_line(self) -> bool:
        """Whether the next request is handled only when those before it are answered."""
        if not self._slots[-1].lets_writes_follow:
            return True
        start = self._start + SIZE_BYTES
        if self._large is not None or start + API_KEY.size > self._end:
            return False  # it is on its way in, or has not come yet
        return bool(API_KEY.unpack_from(self._buffer, start)[0] != PRODUCE)

    def _pause(self) -> None:
        if not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_closing or not self._is_reading_paused or self._must_wait:
            return
        self._is_reading_paused = False
        self.active_ms = self._node.now_ms()  # the client could not show a sign of life
        if self._transport is not None:
            self._transport.resume_reading()
        self._take_frames()

    def stop_reading(self) -> None:
        """The broker stops: answer what was asked, take nothing new."""
        self._is_ending = True
        self._pause()

    def _wait_for_sync(self) -> None:
        self._waits_for_sync = True
        self._node.commit.when_drained(self._sync_has_drained)
        self._pause()

    def _sync_has_drained(self) -> None:
        self._waits_for_sync = False
        self._resume()

    def _wait_for_turn(self) -> None:
        """Let the loop look after the others; a paused one is not read on in the same turn."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            asyncio.get_running_loop().call_soon(self._turn_has_come)
            self._pause()

    def _turn_has_come(self) -> None:
        self._waits_for_turn = False
        self._resume()

    # --- requests and answers -----------------------------------------------------------------

    def _handle(self, frame: bytearray) -> None:
        received_s = perf_counter()
        self._has_asked = True
        try:
            if self._has_login and self.login.receives_bare_messages:
                self._take_bare_message(bytes(frame), received_s)
                return
            header = read_request_header(frame)
            if self._has_login:
                self.login.check_allowed(header.api_key)
            handler = HANDLERS.get(header.api_key)
            if handler is None or header.api_version not in handler.versions:
                self._refuse_version(header)
                return
            # Bytes behind the message are left unread, as Kafka does: librdkafka's Metadata v13
            # has some.
            request, _ = decode_from(
                handler.request_class, header.api_version, frame, header.body_position
            )
            self._counts[header.api_key].note_request(len(frame))
            self._answer(handler, header, request, received_s, len(frame))
        except MalformedMessage as error:
            self._reject(f"malformed request: {error}")
        except MillstreamError as error:
            self._reject(str(error))
        except Exception:
            logger.exception("connection %s closed: a request could not be handled", self.peer)
            self.close()

    def _answer(
        self,
        handler: Handler,
        header: RequestHeader,
        request: Message,
        received_s: float,
        size_bytes: int,
    ) -> None:
        principal = self.login.principal
        call = Call(
            self._node, header.api_version, header.client_id, self.peer, principal, self.login
        )
        has_quotas = self._node.quotas.has_any and self.login.is_done
        if has_quotas and header.api_key == FETCH:
            self._throttle.bound_fetch(request, header, principal)
        answer = handler.function(request, call)
        throttle_ms = 0
        if has_quotas:
            work_s = perf_counter() - received_s
            throttle_ms = self._throttle.charge_request(
                header, principal, size_bytes=size_bytes, work_s=work_s
            )
        if answer is None:
            return
        slot = Slot(header, received_s, throttle_ms)
        if not isinstance(answer, Message):
            self._slots.append(slot)
            self._await(answer, slot, handler)
        elif self._slots:
            slot.chunks = self._encode(answer, slot)
            slot.has_effect = True
            self._slots.append(slot)
        else:
            self._write(self._encode(answer, slot))
            if self.login.must_close:
                self.close()
        if header.api_key == PRODUCE and self._node.commit.is_full:
            self._wait_for_sync()

    def _await(self, answer: Any, slot: Slot, handler: Handler) -> None:
        if isinstance(answer, Later):
            slot.has_effect = True
            answer.then(lambda response: self._fill(slot, response))
        else:
            self._start_task(handler, slot, answer)

    def _start_task(self, handler: Handler, slot: Slot, answer: Any) -> None:
        task: asyncio.Task[Message | Later] = asyncio.ensure_future(answer)
        tasks = self._tasks if handler.ends_with_connection else self._node.work
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda done: self._task_done(slot, done))

    def _task_done(self, slot: Slot, task: "asyncio.Task[Message | Later]") -> None:
        if task.cancelled():
            self.close()
        elif error := task.exception():
            logger.error("connection %s closed: a request failed", self.peer, exc_info=error)
            self.close()
        elif isinstance(answer := task.result(), Later):
            slot.has_effect = True
            answer.then(lambda response: self._fill(slot, response))
            self._resume()
        else:
            self._fill(slot, answer)

    def _fill(self, slot: Slot, response: Message) -> None:
        if self._is_closing:
            return
        try:
            slot.chunks = self._encode(response, slot)
            slot.has_effect = True
        except Exception:
            logger.exception("connection %s closed: an answer could not be written", self.peer)
            self.close()
            return
        self._send_filled()

    def _send_filled(self) -> None:
        while self._slots and self._slots[0].chunks is not None:
            self._write(self._slots.popleft().chunks or [])
        if self._has_login:
            self._note_login()
        if (self._is_ending or self.login.must_close) and not self._slots:
            self.close()
        elif self._is_reading_paused:
            self._resume()

    def _encode(self, response: Message, slot: Slot) -> list[Buffer]:
        """The answer in bytes, counted."""
        header = slot.header
        if slot.throttle_ms:
            response = told(response, slot.throttle_ms)
        chunks = encode_response(response, header.api_version, header.correlation_id)
        size_bytes = sum(map(len, chunks))
        if header.api_key in FETCHES and self._node.quotas.has_any:
            delay_ms = self._throttle.charge_fetched(
                header, self.login.principal, size_bytes=size_bytes, delay_ms=slot.throttle_ms
            )
            if delay_ms:
                response = self._throttled(response, delay_ms)
                chunks = encode_response(response, header.api_version, header.correlation_id)
                size_bytes = sum(map(len, chunks))
        seconds = perf_counter() - slot.received_s
        self._counts[header.api_key].note_answer(response, size_bytes=size_bytes, seconds=seconds)
        if self._says_each_request:
            logger.debug(
                "%s: %s %d by %.100r: %.1f ms, %d bytes", self.peer, ApiKey(header.api_key).name,
                header.api_version, header.client_id, seconds * 1000, size_bytes,
            )  # fmt: skip
        return chunks

    def _throttled(self, response: Message, delay_ms: int) -> Message:
        """A fetch session goes on, as if what the client does not get had not been read."""
        if isinstance(response, FetchResponse):
            session_id = self._node.fetch_sessions.take_back(response)
            return FetchResponse(
                error_code=response.error_code, throttle_time_ms=delay_ms, session_id=session_id
            )
        return told(response, delay_ms)

    def _write(self, chunks: list[Buffer]) -> None:
        if self._transport is not None and not self._is_closing:
            if len(chunks) == 1:
                self._transport.write(chunks[0])
            else:
                self._transport.writelines(chunks)

    def _refuse_version(self, header: RequestHeader) -> None:
        """A client that is too new asks for ApiVersions first, and must learn what we know."""
        if header.api_key != ApiKey.API_VERSIONS:
            self._reject(f"API {header.api_key} version {header.api_version} is not offered")
            return
        response = self._node.api_versions(error_code=ErrorCode.UNSUPPORTED_VERSION)
        assert isinstance(response, ApiVersionsResponse)
        self._write(encode_response(response, 0, header.correlation_id))

    # --- a login without requests around it ---------------------------------------------------

    def _take_bare_message(self, message: bytes, received_s: float) -> None:
        """After SaslHandshake 0: a frame is a message of the mechanism, and so is its answer."""
        slot = Slot(NO_HEADER, received_s)
        self._slots.append(slot)
        task = asyncio.ensure_future(self.login.take_bare_message(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: self._bare_message_done(slot, done))

    def _bare_message_done(self, slot: Slot, task: "asyncio.Task[bytes | None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            logger.error("connection %s closed: a login failed", self.peer, exc_info=error)
        if task.cancelled() or task.exception() or (reply := task.result()) is None:
            self.close()
            return
        slot.chunks = [FRAME_SIZE.pack(len(reply)) + reply]
        self._send_filled()

    # --- the end ------------------------------------------------------------------------------

    def _reject(self, reason: str) -> None:
        """Take no more requests, and close when those that came before are answered.

        What a client does wrong it does at once again, and for ever: only at the level of debug
        does every time have a line.
        """
        line = self._node.complaints.about(self.peer.host, reason)
        level = logging.DEBUG if line is None else logging.WARNING
        logger.log(level, "connection %s closed: %s", self.peer, line or reason)
        self._node.metrics.connections_rejected += 1
        self._is_ending = True
        if self._slots:
            self._pause()
        else:
            self.close()

    def close(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    @property
    def is_closing(self) -> bool:
        """Until its client has taken what was written; it may never do that."""
        return self._is_closing

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def has_hung_up(self) -> bool:
        """Whether the client has gone, which nobody notices while nothing is read."""
        return self._transport is not None and has_hung_up(self._transport)
