"""Wakes the shell when a pure part has said that time matters to it next."""

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """One call at a time; setting it again forgets the one before. Owned by the loop."""

    __slots__ = ("_handle",)

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._handle is not None

    def set(self, deadline_ms: int | None, *, now_ms: int, when_due: Callable[[], None]) -> None:
        """None: there is nothing to wait for."""
        self.cancel()
        if deadline_ms is not None:
            delay = max(0, deadline_ms - now_ms + 1) / 1000
            self._handle = asyncio.get_running_loop().call_later(delay, self._ring, when_due)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self, when_due: Callable[[], None]) -> None:
        self._handle = None
        when_due()
