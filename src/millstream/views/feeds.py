"""Change feeds: the current rows of a view, then every change of it, for as long as one listens.

    for change in view.subscribe(where={"url": "/"}):
        ...                                         # change.kind, .key, .row, .version, .token

One thread for each view and process looks for new changes, reads them once for all subscribers,
and wakes them. What each one gets is said in `feed_changes.py`, how it moves in
`feed_follower.py`; docs/guides/feeds.md has the whole. Writes nothing.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from millstream.base.closing import Closing
from millstream.base.errors import Retryable
from millstream.views.feed_changes import Change
from millstream.views.feed_follower import BadSubscription, Follower, Slow, TooSlow, Wish
from millstream.views.feed_source import ChangeSource, Forgotten, Recent, Tail
from millstream.views.feed_tokens import BadToken
from millstream.views.feed_waits import Waits

__all__ = [
    "AsyncSubscription",
    "BadSubscription",
    "BadToken",
    "Change",
    "Feed",
    "Slow",
    "Subscription",
    "TooSlow",
    "Wish",
]

# A look costs 12 microseconds, and a thread's waking ten times that (bench/feeds.py): 1 to 2
# percent of a core, for a delay of 5 ms on average.
LOOK_EVERY_S = 0.01

Wake = Callable[[], None]


class Feed:
    """The changes of one view, in this process. Its thread lives while somebody subscribes."""

    def __init__(self, view: str, source: ChangeSource) -> None:
        self.view, self.source = view, source
        self._changed = threading.Condition()
        self._recent: Recent | None = None
        self._failure: Exception | None = None
        self._wakes: dict[object, Wake] = {}
        self._thread: threading.Thread | None = None

    def subscribe(
        self, wish: Wish, *, heartbeat: float | None = None, timeout: float | None = None
    ) -> "Subscription":
        """Times are in seconds."""
        return Subscription(self, wish, Waits(timeout=timeout, heartbeat=heartbeat))

    def subscribe_async(
        self, wish: Wish, *, heartbeat: float | None = None, timeout: float | None = None
    ) -> "AsyncSubscription":
        return AsyncSubscription(self, wish, Waits(timeout=timeout, heartbeat=heartbeat))

    def join(self, subscriber: object, wake: Wake) -> None:
        """`wake` is called from another thread when there may be more."""
        with self._changed:
            self._wakes[subscriber] = wake
            if self._thread is None:
                self._recent = self._failure = None
                name = f"feed of {self.view}"
                self._thread = threading.Thread(target=self._keep_looking, name=name, daemon=True)
                self._thread.start()

    def leave(self, subscriber: object) -> None:
        with self._changed:
            self._wakes.pop(subscriber, None)
            self._changed.notify_all()

    def newest(self) -> Recent | None:
        """None before the first look; raises what the last look ran into."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return self._recent

    def wait_for_news(
        self, subscriber: object, known: Recent | None, timeout_s: float | None
    ) -> bool:
        """True also if the subscriber has left."""

        def is_news() -> bool:
            is_new = self._recent is not known or self._failure is not None
            return is_new or subscriber not in self._wakes

        with self._changed:
            return self._changed.wait_for(is_news, timeout_s)

    # --- the thread

    def _keep_looking(self) -> None:
        try:
            while self._is_wanted():
                self._look()
                with self._changed:
                    self._changed.wait_for(lambda: not self._wakes, LOOK_EVERY_S)
        except Exception as error:  # every subscriber gets it
            self._fail(error)

    def _is_wanted(self) -> bool:
        with self._changed:
            if not self._wakes:
                self._thread = None
                self.source.close()
            return self._thread is not None

    def _look(self) -> None:
        with contextlib.suppress(Retryable):  # the next look is soon
            tail, known = self.source.tail(), self._recent
            if known is None or tail != known.tail:
                self._show(followed(self.source, known, tail))

    def _show(self, recent: Recent) -> None:
        with self._changed:
            self._recent = recent
            self._wake_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure, self._thread = error, None
            self._wake_all()

    def _wake_all(self) -> None:
        self._changed.notify_all()
        for wake in self._wakes.values():
            wake()


def followed(source: ChangeSource, known: Recent | None, tail: Tail | None) -> Recent:
    if known is None or tail is None:
        return Recent(tail)
    since = known.missing_since(tail)
    if since is None:
        return Recent(tail)
    return known.grown(tail, source.changes(tail.timeline, since=since, end=tail.seq))


class Following:
    """A subscriber's follower, what lies ready ahead of it, and how long it waits."""

    def __init__(self, feed: Feed, wish: Wish, waits: Waits) -> None:
        self._feed, self._waits = feed, waits
        self._follower = Follower(feed.view, wish, feed.source)
        self._ahead: Iterator[Change] = iter(())
        self._last: Change | None = None
        self._is_closed = False

    @property
    def token(self) -> str | None:
        """Goes on after what was handed out; None in the midst of current rows."""
        return self._follower.token if self._last is None else self._last.token

    def _ready(self) -> Change | None:
        """What lies ahead; None when that is handed out, and with it all up to the follower."""
        self._last = next(self._ahead, None)
        return self._last

    def _rest(self, limit: int) -> list[Change]:
        rest: list[Change] = []
        while len(rest) < limit and (change := self._ready()) is not None:
            rest.append(change)
        return rest

    def _step(self, recent: Recent) -> bool:
        """False if the store has moved on meanwhile: the next look shows where to."""
        try:
            self._ahead = self._follower.step(recent)
        except Forgotten:
            return False
        return True

    def _is_behind(self, recent: Recent | None) -> bool:
        return recent is not None and self._follower.is_behind(recent)

    def _heartbeat(self, recent: Recent | None, waits: Waits) -> Change | None:
        waits.restart_heartbeat()
        return None if recent is None else self._follower.bookmark(recent)


class Subscription(Following, Closing):
    """An iterator of changes, for one thread at a time; `close` it, from any.

    It ends when nothing has come for `timeout`, and goes on if it is asked again. When nothing
    has come for `heartbeat` it gives a "current", with the newest token. Raises `TooSlow`.
    """

    def __init__(self, feed: Feed, wish: Wish, waits: Waits) -> None:
        super().__init__(feed, wish, waits)
        feed.join(self, _wake_nobody)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        change = self._next(self._waits)
        if change is None:
            raise StopIteration
        return change

    def take(self, limit: int, *, timeout: float | None = None) -> list[Change]:
        """Up to `limit` changes, as soon as there are any; none if none come for `timeout`."""
        first = self._next(Waits(timeout=timeout))
        return [] if first is None else [first, *self._rest(limit - 1)]

    def close(self) -> None:
        self._is_closed = True
        self._feed.leave(self)

    def _next(self, waits: Waits) -> Change | None:
        """None if its time is over, or if it is closed."""
        while not self._is_closed:
            if (change := self._ready()) is not None:
                waits.restart()
                return change
            recent = self._feed.newest()
            if self._is_behind(recent):
                self._move(recent)
            elif not self._feed.wait_for_news(self, recent, waits.left_s()):
                if waits.is_over():
                    waits.restart()
                    return None
                if (mark := self._heartbeat(recent, waits)) is not None:
                    return mark
        return None

    def _move(self, recent: Recent | None) -> None:
        if recent is not None and not self._step(recent):
            self._feed.wait_for_news(self, recent, LOOK_EVERY_S)


class AsyncSubscription(Following):
    """The same for `async for`, in one task at a time; a wait that is cancelled loses nothing."""

    def __init__(self, feed: Feed, wish: Wish, waits: Waits) -> None:
        super().__init__(feed, wish, waits)
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._moving: asyncio.Future[bool] | None = None
        feed.join(self, self._wake)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        change = await self._next(self._waits)
        if change is None:
            raise StopAsyncIteration
        return change

    async def take(
        self,
        limit: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (as in `Subscription`)
    ) -> list[Change]:
        """Up to `limit` changes, as soon as there are any; none if none come for `timeout`."""
        first = await self._next(Waits(timeout=timeout))
        return [] if first is None else [first, *self._rest(limit - 1)]

    async def aclose(self) -> None:
        self._is_closed = True
        self._feed.leave(self)
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _next(self, waits: Waits) -> Change | None:
        while not self._is_closed:
            if self._moving is not None:
                await self._moved(self._moving)
            if (change := self._ready()) is not None:
                waits.restart()
                return change
            self._news.clear()
            recent = self._feed.newest()
            if self._is_behind(recent):
                await self._move(recent)
            elif not await self._has_news(waits.left_s()):
                if waits.is_over():
                    waits.restart()
                    return None
                if (mark := self._heartbeat(recent, waits)) is not None:
                    return mark
        return None

    async def _move(self, recent: Recent | None) -> None:
        """Reads in a thread, so that the loop goes on."""
        if recent is None:
            return
        if self._follower.needs_store(recent):
            self._moving = asyncio.ensure_future(asyncio.to_thread(self._step, recent))
            self._moving.add_done_callback(_look_at)
            await self._moved(self._moving)
        else:
            self._step(recent)

    async def _moved(self, moving: "asyncio.Future[bool]") -> None:
        """Who is cancelled here leaves the read alone, and finds it when it is back."""
        try:
            has_moved = await asyncio.shield(moving)
        finally:
            if moving.done():
                self._moving = None
        if not has_moved:
            await self._has_news(LOOK_EVERY_S)

    async def _has_news(self, timeout_s: float | None) -> bool:
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._news.set)


def _look_at(moved: "asyncio.Future[bool]") -> None:
    """Who has left does not care how it ended."""
    if not moved.cancelled():
        moved.exception()


def _wake_nobody() -> None:
    """Who waits in a thread waits for the feed itself."""
