"""Late events in quarantine, and their way back into their topic. Pure: records to events and back.

A record of `<topic>.late` is the event as it came, with headers that say from where and why, as a
dead letter has them. Two jobs may have met the same event late, and a repeated batch writes it
again: by its origin it is one. An event that is put back is a record like any other, with its own
headers and one that names its origin; a record without a value remembers that
(docs/formats/late_events.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from millstream.base.dead_letter_headers import (
    GROUP_HEADER,
    HISTORY_PREFIX,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from millstream.base.record import Header, Record

# The id of a late event: on the event that was put back, and on the record that remembers it.
REINJECTED_HEADER = "millstream.reinjected"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEvent:
    """An event in quarantine; `jobs` are those that it was late for."""

    topic: str
    partition: int
    offset: int
    written_ms: int  # when its record was written
    jobs: tuple[str, ...]
    reason: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]  # the application's
    quarantined_ms: int
    reinjected_ms: int | None = None

    @property
    def id(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"


# By its id and when it was written: of a topic that was made again, offsets begin anew.
EventKey = tuple[str, int]


def events_in(records: Iterable[Record]) -> list[LateEvent]:
    """All events in quarantine in the order of the topic, each once; those put back are marked."""
    found: dict[EventKey, LateEvent] = {}
    waiting: dict[str, list[EventKey]] = {}  # not put back so far, by id
    for record in records:
        headers = dict(record.headers)
        if TOPIC_HEADER in headers:
            event = _event_from(record, headers)
            key = (event.id, event.written_ms)
            if key not in found:
                waiting.setdefault(event.id, []).append(key)
            found[key] = _joined(found.get(key), event)
        elif REINJECTED_HEADER in headers:
            for key in waiting.pop(_text(headers[REINJECTED_HEADER]), ()):
                found[key] = replace(found[key], reinjected_ms=record.timestamp_ms)
    return [*found.values()]


def _joined(known: LateEvent | None, event: LateEvent) -> LateEvent:
    if known is None:
        return event
    return replace(known, jobs=tuple(sorted({*known.jobs, *event.jobs})))


def _event_from(record: Record, headers: dict[str, bytes | None]) -> LateEvent:
    return LateEvent(
        topic=_text(headers[TOPIC_HEADER]),
        partition=_number(headers.get(PARTITION_HEADER)),
        offset=_number(headers.get(OFFSET_HEADER)),
        written_ms=_number(headers.get(TIMESTAMP_HEADER)),
        jobs=(_text(headers.get(GROUP_HEADER)),),
        reason=_text(headers.get(MESSAGE_HEADER)),
        key=record.key,
        value=record.value,
        headers=tuple(one for one in record.headers if not one[0].startswith(HISTORY_PREFIX)),
        quarantined_ms=record.timestamp_ms,
    )


def reinjected_headers(event: LateEvent) -> list[Header]:
    """Its own headers, and where it came from. Of an earlier way back only the last is told."""
    own = [one for one in event.headers if one[0] != REINJECTED_HEADER]
    return [*own, (REINJECTED_HEADER, event.id.encode())]


def chosen(events: Sequence[LateEvent], ids: Iterable[str] | None) -> list[LateEvent]:
    """Those that wait, of these ids or all. None that was put back is put back again."""
    wanted = None if ids is None else {*ids}
    return [
        event
        for event in events
        if event.reinjected_ms is None and (wanted is None or event.id in wanted)
    ]


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _number(value: bytes | None) -> int:
    text = _text(value)
    return int(text) if text.isascii() and text.isdecimal() else -1
