"""The changes of a captured table: as server-sent events for as long as the client listens, or one
answer of JSON for who asks again and again.

    id: shop.orders@0:1042
    event: u
    data: {"table":"orders","op":"u","key":{"id":7},"before":null,"after":{"id":7,...},...}

It begins with the first row that the table's topic has: every change has a token to go on from, so
an answer may end at any of them.
"""

import contextlib
import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from millstream.capture.recorded_change import RecordedChange
from millstream.web.change_feeds import (
    EVENT_STREAM,
    POLL_SECONDS_DEFAULT,
    ROWS_SECONDS_MAX,
    TOGETHER_SECONDS,
    Feed,
    event_stream,
    since_of,
)
from millstream.web.ports import UpcomingChanges
from millstream.web.questions import Asked
from millstream.web.row_json import to_json
from millstream.web.serving import Serving, answer
from millstream.web.view_requests import LIMIT_DEFAULT

TABLE_CHANGES_PARAMETERS = ("since", "timeout", "limit")


async def list_tables(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    return answer({"tables": sorted(serving.application.tables())})


async def table_changes(request: Request, serving: Serving) -> Response:
    asked = Asked(request.query_params.multi_items(), known=TABLE_CHANGES_PARAMETERS)
    limit = asked.whole("limit", default=LIMIT_DEFAULT, at_most=serving.limits.limit_max)
    at_most = serving.limits.timeout_ms_max / 1000
    timeout_s = asked.seconds("timeout", default=POLL_SECONDS_DEFAULT, at_most=at_most)
    table, since = request.path_params["table"], since_of(request, asked)
    serving.require_table(table)
    with contextlib.ExitStack() as slot:
        slot.enter_context(serving.calls.feed())
        opening = partial(serving.application.changes, table, since=since)
        changes = await serving.calls.ask_broker(opening)
        feed = Feed(changes, closing=serving.closing)
        if EVENT_STREAM in request.headers.get("accept", ""):
            return await event_stream(feed, serving, slot.pop_all(), to_event)
        try:
            found = await _together(feed, changes, limit=limit, timeout_s=timeout_s)
            last = found[-1].token if found else changes.token
        finally:
            await feed.close()
    return answer({"results": [change.to_json() for change in found], "last": last})


async def _together(
    feed: Feed[RecordedChange], changes: UpcomingChanges, *, limit: int, timeout_s: float
) -> list[RecordedChange]:
    """Waits for a first change, and takes those that are there with it."""
    found: list[RecordedChange] = []
    patience_s = timeout_s
    while len(found) < limit and await _has_next(feed, changes, patience_s):
        change = feed.take()
        if change is None:
            break
        found.append(change)
        patience_s = TOGETHER_SECONDS
    return found


async def _has_next(
    feed: Feed[RecordedChange], changes: UpcomingChanges, patience_s: float
) -> bool:
    """What is there already comes, however short the patience: it has to be fetched first."""
    until = time.monotonic() + max(patience_s, ROWS_SECONDS_MAX)
    while not (is_there := await feed.has_next(patience_s)):
        if changes.has_all or feed.is_closing or time.monotonic() > until:
            break
        patience_s = TOGETHER_SECONDS
    return is_there


def to_event(change: RecordedChange) -> bytes:
    data = to_json(change.to_json())
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        change.token.encode(),
        change.op.encode(),
        data,
    )
