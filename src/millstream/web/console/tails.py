"""What comes, as it comes: records of a topic, changes of a view. Rows of a table, as events.

    event: rows
    data: {"html": "<tr>…", "skipped": 0}

Of a flood, so many rows a moment are shown, and the rest are counted.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from millstream.base.clock import Clock
from millstream.views.store import Row
from millstream.web.calls import Calls
from millstream.web.change_feeds import Feed, event_stream
from millstream.web.console.app_pages import row_place, shown_value, where_of
from millstream.web.console.broker_pages import partition_of, require_topic
from millstream.web.console.facts import RecordSeen
from millstream.web.console.page_serving import Console, sent
from millstream.web.console.ports import RecordTail
from millstream.web.console.record_text import matches
from millstream.web.console.rendering import render_part
from millstream.web.console.visits import Visit
from millstream.web.ports import FeedEvent, ServedView, Upcoming

POLL_SECONDS = 0.5
ROWS_AT_ONCE = 40
GATHER_SECONDS = 0.2


async def tail_records(request: Request, console: Console) -> Response:
    visit, calls = console.visit(request), console.serving.calls
    with contextlib.ExitStack() as slot:
        slot.enter_context(calls.feed())
        with contextlib.ExitStack() as place:
            place.enter_context(calls.open_tail())
            tail = await calls.ask_broker(lambda: _open(visit))
            events = RecordEvents(tail, calls, place.pop_all(), wanted=visit.text("q"))
        feed = Feed(events, closing=console.serving.closing)
        return await event_stream(feed, console.serving, slot.pop_all(), bytes)


def _open(visit: Visit) -> RecordTail:
    topic = require_topic(visit)
    return visit.source.topics.tail(topic, partition=partition_of(visit, topic))


class RecordEvents:
    """Those of a tail that have the text; the newest of many. Its place among the open tails is
    free again when its consumer is gone, and not before: so many hold memory at one time."""

    def __init__(
        self, tail: RecordTail, calls: Calls, place: contextlib.ExitStack, *, wanted: str
    ) -> None:
        self._tail, self._calls, self._place, self._wanted = tail, calls, place, wanted
        self._one_thread = threading.Lock()
        self._is_closed = False

    def __aiter__(self) -> "RecordEvents":
        return self

    async def __anext__(self) -> bytes:
        while True:
            found = await self._calls.tail(self._poll)
            chosen = [one for one in found if matches(one, self._wanted)]
            if chosen:
                event = record_event(chosen)
                del found, chosen  # a client may be long in taking the event
                await anyio.sleep(GATHER_SECONDS)
                return event

    def _poll(self) -> list[RecordSeen]:
        """A request that is cancelled leaves its thread in here: closing waits for it."""
        with self._one_thread:
            return [] if self._is_closed else self._tail.poll(POLL_SECONDS)

    async def aclose(self) -> None:
        with self._place:
            await self._calls.tail(self._close)

    def _close(self) -> None:
        with self._one_thread:
            self._is_closed = True
            self._tail.close()


def record_event(records: list[RecordSeen]) -> bytes:
    """The newest first, as the table has them."""
    shown = records[-ROWS_AT_ONCE:]
    rows = [render_part("record_row", one) for one in reversed(shown)]
    return sent("rows", {"html": "".join(rows), "skipped": len(records) - len(shown)})


# --- views --------------------------------------------------------------------------------------


async def tail_changes(request: Request, console: Console) -> Response:
    """From now on: the page has the rows that are there."""
    visit, serving = console.visit(request), console.serving
    with contextlib.ExitStack() as slot:
        slot.enter_context(serving.calls.feed())
        view, where, since = await serving.calls.run(lambda: _begun(visit))
        changes = view.subscribe_async(where=where, since=since, slow="latest")
        columns = [one.name for one in view.schema]
        events = ChangeEvents(
            changes,
            columns=columns,
            place_of=partial(row_place, visit.path["view"], view.key),
            now_ms=console.now_ms,
        )
        feed = Feed(events, closing=serving.closing)
        return await event_stream(feed, serving, slot.pop_all(), bytes)


def _begun(visit: Visit) -> tuple[ServedView, Mapping[str, Any], str | None]:
    view = visit.serving.view(visit.path["view"])
    where = where_of(visit, view)
    return view, where, view.token(where=where)


class ChangeEvents:
    """One for each change; without those that only tell that all is current."""

    def __init__(
        self,
        changes: Upcoming[FeedEvent],
        *,
        columns: list[str],
        place_of: Callable[[Row], str],
        now_ms: Clock,
    ) -> None:
        self._changes, self._columns, self._now_ms = changes, columns, now_ms
        self._place_of = place_of

    def __aiter__(self) -> "ChangeEvents":
        return self

    async def __anext__(self) -> bytes:
        while True:
            change = await self._changes.__anext__()
            if change.kind in ("upsert", "delete"):
                return self._event(change)

    def _event(self, change: FeedEvent) -> bytes:
        row = change.row or change.key or {}
        cells = [shown_value(row[name]) if name in row else "" for name in self._columns]
        place = self._place_of(change.row) if change.row and change.kind == "upsert" else ""
        places = [place, *[""] * (len(cells) - 1)]
        at_ms = self._now_ms()
        markup = render_part("change_row", change.kind, change.version, cells, at_ms, places)
        return sent("rows", {"html": markup, "skipped": 0})

    async def aclose(self) -> None:
        await self._changes.aclose()
