"""The outbox pattern: what an application wants to be told is written in its own transaction. Pure.

Either as a row of a table with these columns, or as a message in the database's log:

    id              goes along as the header `id`, for consumers that see an event twice
    topic           or aggregate_type: the topic
    key             or aggregate_id: the record's key; may be missing
    payload         the record's value: text, JSON or bytes

    pg_logical_emit_message(true, 'outbox:orders', payload)        without a key
    pg_logical_emit_message(true, 'outbox:orders:42', payload)     with a key
"""

import base64
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from millstream.base.schema import Scalar
from millstream.capture.change import CREATED, READ, CapturedTable, Change, Message

PREFIX = "outbox:"
TOPIC_COLUMNS = ("topic", "aggregate_type", "aggregatetype")
KEY_COLUMNS = ("key", "aggregate_id", "aggregateid")
# Not one of the broker's and of captures, which begin with "_": who may write a row into an outbox
# is not thereby one who may command captures. And "." and ".." are no topics.
TOPIC_NAME = re.compile(r"(?!_|\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


class Event(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class NotRoutable(NamedTuple):
    """A row that names no topic: it is told, and kept where it was."""

    reason: str


@runtime_checkable
class DeletesRows(Protocol):
    """A source that can take rows out of an outbox, once they are events."""

    def delete_rows(self, table: CapturedTable, keys: Sequence[bytes]) -> None: ...


def is_event(change: Change) -> bool:
    """A row that came. That it goes again is the way of an outbox, and no event."""
    return change.op in (CREATED, READ)


def event_from_row(change: Change) -> Event | NotRoutable:
    row: dict[str, Any] = json.loads(change.after or b"{}")
    topic = _first(row, TOPIC_COLUMNS)
    if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic):
        return NotRoutable(f"the row {(change.key or b'?').decode()} names no topic: {topic!r}")
    key = _first(row, KEY_COLUMNS)
    headers = (("id", _text(row["id"])),) if row.get("id") is not None else ()
    return Event(
        topic,
        None if key is None else _text(key),
        _payload(row.get("payload"), change.table),
        headers,
    )


def event_from_message(message: Message) -> Event | None:
    """None: it is none of ours."""
    if not message.prefix.startswith(PREFIX):
        return None
    topic, colon, key = message.prefix.removeprefix(PREFIX).partition(":")
    if not TOPIC_NAME.fullmatch(topic):
        return None
    return Event(topic, key.encode() if colon else None, message.content)


def _first(row: dict[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _payload(found: Any, table: CapturedTable) -> bytes | None:
    if found is None:
        return None
    types = {column.name: column.type for column in table.columns}
    if types.get("payload") is Scalar.BINARY:
        return base64.b64decode(found)
    return _text(found)


def _text(found: Any) -> bytes:
    return (found if isinstance(found, str) else json.dumps(found)).encode()
