"""Changes of a view as server-sent events, and as JSON. Pure.

    id: AWFi...
    event: upsert
    data: {"kind":"upsert","key":{"url":"/"},"row":{"url":"/","count":7},"version":12,"token":...}

`id` is the token to go on from, which browsers send back as Last-Event-ID. A line that starts with
a colon is a heartbeat.
"""

from typing import Any

from millstream.web.ports import FeedEvent
from millstream.web.row_json import to_json

HEARTBEAT = b":\n\n"


def plain_event(event: FeedEvent) -> dict[str, Any]:
    """A reset, and the word that all is current, have no key; a delete has no row."""
    return {
        "kind": event.kind,
        "key": event.key,
        "row": event.row,
        "version": event.version,
        "token": event.token,
    }


def to_event(event: FeedEvent) -> bytes:
    """JSON has no line breaks outside of its texts, and in them they are escaped."""
    data = to_json(plain_event(event))
    id_line = b"" if event.token is None else b"id: %s\n" % event.token.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (id_line, event.kind.encode(), data)


def problem_event(problem: bytes) -> bytes:
    return b"event: problem\ndata: %s\n\n" % problem
