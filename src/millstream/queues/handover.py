"""Where jobs pass from the links to the application: what is ready, who waits, what is held.

Runs in the worker's loop, where nothing needs a lock. Does no I/O and knows no broker.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.queues.acknowledgements import Partition, Place
from millstream.queues.deliveries import Delivery
from millstream.queues.held_jobs import HeldJobs


@dataclass(frozen=True, slots=True)
class Waiter:
    future: "asyncio.Future[Delivery | None]"
    until_ms: int | None  # None: for as long as it takes


class Handover:
    """`when_wanted` is called when somebody begins to wait: the links look up."""

    def __init__(self, *, prefetch: int, now_ms: Clock, when_wanted: Callable[[], None]) -> None:
        self.held = HeldJobs()
        self._ready: deque[Delivery] = deque()
        self._waiters: deque[Waiter] = deque()
        self._prefetch, self._now_ms, self._when_wanted = prefetch, now_ms, when_wanted
        self._failure: MillstreamError | None = None
        self._is_closed = False

    @property
    def wanted(self) -> int:
        """How many more jobs to fetch. Nothing is fetched ahead while nobody asks."""
        waiting = len(self._waiters)
        return max(0, waiting + self._prefetch - len(self._ready)) if waiting else 0

    def patience_ms(self, *, at_most: int) -> int:
        """How long a fetch may wait: no longer than those who wait for it."""
        now_ms = self._now_ms()
        left = [at_most if one.until_ms is None else one.until_ms - now_ms for one in self._waiters]
        return max(0, min(at_most, max(left, default=0)))

    async def get(self, timeout_ms: int | None) -> Delivery | None:
        """The next job, or None when the time is up or the queue was closed."""
        if self._failure is not None:
            raise self._failure
        ready = self._next_ready()
        if ready is not None or self._is_closed:
            return ready
        future = asyncio.get_running_loop().create_future()
        until_ms = None if timeout_ms is None else self._now_ms() + timeout_ms
        waiter = Waiter(future, until_ms)
        self._waiters.append(waiter)
        self._when_wanted()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                delivery: Delivery | None = await future
                return delivery
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and (given := future.result()) is not None:
                self.held.give_back(given.place)
                self._when_wanted()
            raise
        except TimeoutError:
            # It may have been handed over in the very moment in which the time was up.
            return future.result() if future.done() and not future.cancelled() else None
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _next_ready(self) -> Delivery | None:
        while self._ready:
            delivery = self._ready.popleft()
            if self.held.take(delivery):
                return delivery
        return None

    def offer(self, deliveries: Iterable[Delivery]) -> None:
        """They were fetched, and are held; each goes to one who waits, or is ready for the next."""
        self._ready.extend(deliveries)
        while self._ready and self._waiters:
            waiter = self._waiters.popleft()
            if waiter.future.done():
                continue
            delivery = self._next_ready()
            if delivery is None:
                self._waiters.appendleft(waiter)
                return
            waiter.future.set_result(delivery)

    def withdraw(self, places: Iterable[Place]) -> None:
        """They are not ours any more, and must not be given to the application."""
        gone = {*places}
        self._ready = deque(one for one in self._ready if one.place not in gone)

    def lose(self, partitions: Iterable[Partition]) -> None:
        self.withdraw(self.held.lose(partitions))

    def fail(self, error: MillstreamError) -> None:
        """Nothing will come any more: everybody who asks is told why."""
        self._failure = error
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self._waiters.clear()

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_result(None)
        self._waiters.clear()
