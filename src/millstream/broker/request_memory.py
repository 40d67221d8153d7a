"""The memory that requests in receipt may take, all connections together.

A connection asks before it makes room for a large request. Without room it is not read until
another one is done; small requests need no leave. What was granted is used only as bytes arrive.
"""

from collections import deque
from collections.abc import Callable

# A size costs a client four bytes: until more of the request has come, it costs us no more than
# this. Most large requests are below it (max.message.bytes), and never have to grow.
FIRST_ROOM_BYTES = 1 << 20


class LargeRequest:
    """A request on its way that does not fit its connection's buffer. It has `size` bytes in the
    end; the room for them doubles whenever it is full."""

    __slots__ = ("_received", "content", "size")

    def __init__(self, size: int, start: bytes | bytearray) -> None:
        self.size = size
        self.content = bytearray(min(size, FIRST_ROOM_BYTES))
        self.content[: len(start)] = start
        self._received = len(start)

    def room(self) -> memoryview:
        """Where the next bytes go; not empty before the request is whole."""
        room = len(self.content)
        if self._received == room:
            self.content += bytes(min(room, self.size - room))
        return memoryview(self.content)[self._received :]

    def note_received(self, count: int) -> None:
        self._received += count

    @property
    def is_whole(self) -> bool:
        return self._received == self.size


class RequestMemory:
    """Bytes lent to requests. One that is larger than the whole is let in alone."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size_bytes: int) -> bool:
        if self.used_bytes and self.used_bytes + size_bytes > self._bytes_max:
            return False
        self.used_bytes += size_bytes
        return True

    def when_free(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, deque()
        for callback in waiting:
            callback()
