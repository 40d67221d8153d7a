"""The changes of a view: as server-sent events for as long as the client listens, or one answer of
JSON for who asks again and again.

A feed holds no thread while nothing happens. Its first event is waited for before the answer
begins, for a moment: so a token or a condition that cannot be is a plain problem.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.base.errors import MillstreamError
from millstream.views.feeds import Slow
from millstream.web.event_stream import HEARTBEAT, plain_event, problem_event, to_event
from millstream.web.ports import FeedEvent, ServedView, Upcoming
from millstream.web.problems import Problem
from millstream.web.questions import Asked, conditions_of
from millstream.web.serving import Serving, answer
from millstream.web.view_requests import LIMIT_DEFAULT

EventT = TypeVar("EventT")

EVENT_STREAM = "text/event-stream"
LAST_EVENT_ID = "last-event-id"
CHANGES_PARAMETERS = ("since", "where", "timeout", "limit", "slow")
# What becomes of a stream whose reader is slow (docs/guides/feeds.md). An answer of JSON is cut at
# its limit, and needs a token at every change to go on from: no change may be left out.
SLOW: tuple[Slow, ...] = ("buffer", "latest", "disconnect")
SLOW_OF_POLLS: Slow = "buffer"
POLL_SECONDS_DEFAULT = 25.0
# What came together is answered together.
TOGETHER_SECONDS = 0.02
FIRST_SECONDS = 0.5
# Current rows are there, and come one behind the other: whoever asks for them waits for them.
ROWS_SECONDS_MAX = 10.0


async def changes(request: Request, serving: Serving) -> Response:
    asked = Asked(request.query_params.multi_items(), known=CHANGES_PARAMETERS)
    limit = asked.whole("limit", default=LIMIT_DEFAULT, at_most=serving.limits.limit_max)
    at_most = serving.limits.timeout_ms_max / 1000
    timeout_s = asked.seconds("timeout", default=POLL_SECONDS_DEFAULT, at_most=at_most)
    slow = cast(Slow, asked.word("slow", SLOW))
    is_stream = EVENT_STREAM in request.headers.get("accept", "")
    with contextlib.ExitStack() as slot:
        slot.enter_context(serving.calls.feed())
        feed = await _feed(request, serving, asked, slow=slow if is_stream else SLOW_OF_POLLS)
        if is_stream:
            return await event_stream(feed, serving, slot.pop_all(), to_event)
        try:
            poll = Poll(limit=limit, timeout_s=timeout_s, rows_max=serving.limits.limit_max)
            return answer(await poll.answer(feed, since=since_of(request, asked)))
        finally:
            await feed.close()


def since_of(request: Request, asked: Asked) -> str | None:
    """A browser that comes back sends the last token beside the URL that it began with."""
    return request.headers.get(LAST_EVENT_ID) or asked.text("since")


async def _feed(
    request: Request, serving: Serving, asked: Asked, *, slow: Slow
) -> "Feed[FeedEvent]":
    name = request.path_params["view"]

    def conditions() -> tuple[ServedView, Mapping[str, Any]]:
        view = serving.view(name)
        return view, conditions_of(view.schema, asked.document("where"))

    view, where = await serving.calls.run(conditions)
    events = view.subscribe_async(where=where, since=since_of(request, asked), slow=slow)
    return Feed(events, closing=serving.closing)


class Feed(Generic[EventT]):
    """Events one by one, with an end to the patience for the next: a wait that ends loses none."""

    def __init__(self, events: Upcoming[EventT], *, closing: anyio.Event) -> None:
        self._events = events
        self._next: asyncio.Task[EventT | None] | None = None
        self._closing = asyncio.create_task(closing.wait())

    async def has_next(self, within_s: float) -> bool:
        """Raises what the feed raises. Waits no longer when the server stops."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        ends = {self._next, self._closing}
        await asyncio.wait(ends, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._next.done():
            return False
        self._next.result()
        return True

    @property
    def is_closing(self) -> bool:
        return self._closing.done()

    async def _ask(self) -> EventT | None:
        return await anext(self._events, None)

    def take(self) -> EventT | None:
        """The one that is there; None if none will come any more."""
        assert self._next is not None
        task, self._next = self._next, None
        return task.result()

    async def close(self) -> None:
        """Also when the request is being cancelled."""
        with anyio.CancelScope(shield=True):
            tasks = {self._closing, *([] if self._next is None else [self._next])}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._events.aclose()


# --- server-sent events -----------------------------------------------------------------------


class EventStream(StreamingResponse):
    """Ends its feed, and frees its slot, however it ends: most often the client hangs up."""

    def __init__(
        self,
        feed: Feed[EventT],
        serving: Serving,
        slot: contextlib.ExitStack,
        encode: Callable[[EventT], bytes],
    ) -> None:
        super().__init__(_events(feed, serving, encode), media_type=EVENT_STREAM)
        self._feed, self._slot = feed, slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slot.close()
            await self._feed.close()


async def event_stream(
    feed: Feed[EventT],
    serving: Serving,
    slot: contextlib.ExitStack,
    encode: Callable[[EventT], bytes],
) -> Response:
    try:
        await feed.has_next(FIRST_SECONDS)
    except BaseException:
        slot.close()
        await feed.close()
        raise
    return EventStream(feed, serving, slot, encode)


async def _events(
    feed: Feed[EventT], serving: Serving, encode: Callable[[EventT], bytes]
) -> AsyncIterator[bytes]:
    heartbeat_s = serving.limits.heartbeat_ms / 1000
    yield HEARTBEAT  # so that the client knows at once that it is heard
    try:
        while not serving.closing.is_set():
            if not await feed.has_next(heartbeat_s):
                yield HEARTBEAT
            elif (event := feed.take()) is not None:
                yield encode(event)
            else:
                return
    except MillstreamError as error:
        yield problem_event(serving.reported(error, "a feed").to_json())


# --- one answer -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Waits for a first event, and takes those that are there with it, up to one that can be gone
    on from. Current rows are never cut: in their midst there is no token."""

    limit: int
    timeout_s: float
    rows_max: int

    async def answer(self, feed: Feed[FeedEvent], *, since: str | None) -> dict[str, Any]:
        found: list[FeedEvent] = []
        last = since
        is_whole = since is not None  # whether `last` is the end of what was found
        patience = self.timeout_s
        while await feed.has_next(patience if is_whole else ROWS_SECONDS_MAX):
            event = feed.take()
            if event is None:
                break
            found.append(event)
            is_whole = event.token is not None
            last = event.token or last
            if is_whole and len(found) >= self.limit:
                break
            self._require_few(found)
            patience = TOGETHER_SECONDS
        if not is_whole:
            raise Problem("try-again", f"no current rows came in {ROWS_SECONDS_MAX:g} s")
        return {"results": [plain_event(event) for event in found], "last": last}

    def _require_few(self, found: list[FeedEvent]) -> None:
        if len(found) > max(self.rows_max, self.limit):
            raise Problem(
                "too-large",
                f"the view has more than {self.rows_max} current rows: listen to its events "
                "(Accept: text/event-stream), or give `where`",
            )
