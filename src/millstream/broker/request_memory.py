"""The memory that requests in receipt may take, all connections together.

A connection asks before it makes room for a large request. Without room it is not read until
another one is done; small requests need no leave.
"""

from collections import deque
from collections.abc import Callable


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
