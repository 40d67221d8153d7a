"""Runs what blocks in threads, so many at a time; counts what lasts.

A call that waits for a view has a thread of its own pool, and so has one that needs the broker: a
hundred clients that wait for a job that does not run, or a broker that hangs, hold up nobody who
only reads.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

from millstream.web.limits import LARGE_BODIES_MAX, SMALL_BODY_BYTES_MAX, TAILS_MAX, Limits
from millstream.web.problems import Problem

T = TypeVar("T")


class Calls:
    """Of one server, in its event loop."""

    def __init__(self, limits: Limits) -> None:
        self._quick = anyio.CapacityLimiter(limits.threads_max)
        self._broker = anyio.CapacityLimiter(limits.threads_max)
        self._large = anyio.CapacityLimiter(LARGE_BODIES_MAX)
        self._tails = anyio.CapacityLimiter(TAILS_MAX)
        self._waiting = anyio.CapacityLimiter(limits.waits_max)
        self._feeds, self._feeds_max = 0, limits.feeds_max
        self._tails_open = 0

    async def run(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._quick)

    async def ask_broker(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._broker)

    async def take_rows(self, call: Callable[[], T], *, body_bytes: int) -> T:
        """For what reads rows out of a body: of large ones one at a time, for their memory."""
        limiter = self._large if body_bytes > SMALL_BODY_BYTES_MAX else self._broker
        return await anyio.to_thread.run_sync(call, limiter=limiter)

    async def wait(self, call: Callable[[], T]) -> T:
        """For a call that may last: refused rather than queued, and left when the server stops."""
        if self._waiting.available_tokens < 1:
            raise Problem(
                "too-many", f"{self._waiting.total_tokens:g} requests wait for views already"
            )
        return await anyio.to_thread.run_sync(call, limiter=self._waiting, abandon_on_cancel=True)

    async def tail(self, call: Callable[[], T]) -> T:
        """For a wait for records, one after the other: of so many tails, none waits for another."""
        return await anyio.to_thread.run_sync(call, limiter=self._tails)

    @contextmanager
    def open_tail(self) -> Iterator[None]:
        """From before its consumer is made until after it is closed."""
        if self._tails_open >= TAILS_MAX:
            raise Problem("too-many", f"{TAILS_MAX} tails of topics are open already")
        self._tails_open += 1
        try:
            yield
        finally:
            self._tails_open -= 1

    @contextmanager
    def feed(self) -> Iterator[None]:
        if self._feeds >= self._feeds_max:
            raise Problem("too-many", f"{self._feeds_max} feeds are open already")
        self._feeds += 1
        try:
            yield
        finally:
            self._feeds -= 1
