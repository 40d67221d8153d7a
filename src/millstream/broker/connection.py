"""One client connection: cuts frames off the socket, calls handlers, sends answers in order.

Whatever the client does wrong ends this connection with one line in the diagnostics, and nothing
else. It is not read while it has too many unanswered requests, does not take its answers, or
must wait for memory or for the disk: the client feels that, and nothing is dropped.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from typing import Any, cast

from millstream.base.errors import MillstreamError
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

logger = logging.getLogger(__name__)

# Requests up to this size share the connection's buffer; a larger one gets its own.
RECEIVE_BYTES = 32 << 10
FRAME_SIZE = struct.Struct(">I")  # the protocol's int32; a negative one reads as > 2 GiB
SIZE_BYTES = FRAME_SIZE.size
PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
# Answers that the client does not take: past the first the connection is not read any more.
WRITE_BUFFER_HIGH_BYTES = 1 << 20


class Slot:
    """The place of one answer in the order of the requests.

    With `is_last` no further request is taken up before this one is answered: answers to Fetch
    are large, and many at a time would take memory before the client can take them.
    """

    __slots__ = ("chunks", "correlation_id", "is_last", "version")

    def __init__(self, version: int, correlation_id: int, *, is_last: bool) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.is_last = is_last
        self.chunks: list[Buffer] | None = None


class Connection(asyncio.BufferedProtocol):
    """Owned by the loop; `node.connections` holds it while it is open."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._transport: asyncio.Transport | None = None
        self.peer = Peer("?", 0, "?", 0)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._start = 0
        self._end = 0
        self._large: LargeRequest | None = None
        self._slots: deque[Slot] = deque()
        self._tasks: set[asyncio.Task[Message]] = set()
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._waits_for_memory = False
        self._waits_for_sync = False
        self._is_ending = False
        self._is_closing = False
        self._frame_bytes_max = node.config.frame_bytes_max
        self._in_flight_max = node.config.requests_in_flight_max
        self.active_ms = node.now_ms()

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        remote = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("?", 0)
        self.peer = Peer(str(remote[0]), int(remote[1]), str(local[0]), int(local[1]))
        if not self._node.admit(self):
            self._reject("too many connections (connections_max)")
            return
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
                limit = self._frame_bytes_max
                self._reject(f"a request of {size} bytes, the limit is {limit} (frame_bytes_max)")
                return
            if available < SIZE_BYTES + size:
                if size > RECEIVE_BYTES - SIZE_BYTES:
                    self._start_large(size)
                break
            self._start = start + size
            self._handle(self._buffer[start : self._start])
        if self._start == self._end:
            self._start = self._end = 0

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
    def has_open_requests(self) -> bool:
        return bool(self._slots)

    @property
    def waits_for_us(self) -> bool:
        """Whether it is our doing that nothing more is read."""
        return self._waits_for_memory or self._waits_for_sync

    # --- when to read -------------------------------------------------------------------------

    @property
    def _must_wait(self) -> bool:
        return (
            self._is_writing_paused
            or self._waits_for_sync
            or self._waits_for_memory
            or self._is_ending
            or len(self._slots) >= self._in_flight_max
            or (bool(self._slots) and self._slots[-1].is_last)
        )

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

    # --- requests and answers -----------------------------------------------------------------

    def _handle(self, frame: bytearray) -> None:
        try:
            header = read_request_header(frame)
            handler = HANDLERS.get(header.api_key)
            if handler is None or header.api_version not in handler.versions:
                self._refuse_version(header)
                return
            # Bytes behind the message are left unread, as Kafka does: librdkafka's Metadata v13
            # has some.
            request, _ = decode_from(
                handler.request_class, header.api_version, frame, header.body_position
            )
            self._answer(handler, header, request)
        except MalformedMessage as error:
            self._reject(f"malformed request: {error}")
        except MillstreamError as error:
            self._reject(str(error))
        except Exception:
            logger.exception("connection %s closed: a request could not be handled", self.peer)
            self.close()

    def _answer(self, handler: Handler, header: RequestHeader, request: Message) -> None:
        call = Call(self._node, header.api_version, header.client_id, self.peer)
        answer = handler.function(request, call)
        if answer is None:
            return
        if isinstance(answer, Message):
            chunks = encode_response(answer, header.api_version, header.correlation_id)
            if self._slots:
                slot = self._new_slot(header)
                slot.chunks = chunks
            else:
                self._write(chunks)
        elif isinstance(answer, Later):
            slot = self._new_slot(header)
            answer.then(lambda response: self._fill(slot, response))
        else:
            self._start_task(handler, self._new_slot(header), answer)
        if header.api_key == PRODUCE and self._node.commit.is_full:
            self._wait_for_sync()

    def _new_slot(self, header: RequestHeader) -> Slot:
        is_last = header.api_key == FETCH
        slot = Slot(header.api_version, header.correlation_id, is_last=is_last)
        self._slots.append(slot)
        return slot

    def _start_task(self, handler: Handler, slot: Slot, answer: Any) -> None:
        task: asyncio.Task[Message] = asyncio.ensure_future(answer)
        tasks = self._tasks if handler.ends_with_connection else self._node.work
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda done: self._task_done(slot, done))

    def _task_done(self, slot: Slot, task: "asyncio.Task[Message]") -> None:
        if task.cancelled():
            self.close()
        elif error := task.exception():
            logger.error("connection %s closed: a request failed", self.peer, exc_info=error)
            self.close()
        else:
            self._fill(slot, task.result())

    def _fill(self, slot: Slot, response: Message) -> None:
        if self._is_closing:
            return
        try:
            slot.chunks = encode_response(response, slot.version, slot.correlation_id)
        except Exception:
            logger.exception("connection %s closed: an answer could not be written", self.peer)
            self.close()
            return
        while self._slots and self._slots[0].chunks is not None:
            self._write(self._slots.popleft().chunks or [])
        if self._is_ending and not self._slots:
            self.close()
        elif self._is_reading_paused:
            self._resume()

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

    # --- the end ------------------------------------------------------------------------------

    def _reject(self, reason: str) -> None:
        """Take no more requests, and close when those that came before are answered."""
        logger.warning("connection %s closed: %s", self.peer, reason)
        self._is_ending = True
        if self._slots:
            self._pause()
        else:
            self.close()

    def close(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()
