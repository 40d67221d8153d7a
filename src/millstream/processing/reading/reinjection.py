"""Reads the quarantine of a topic, and puts late events back: each once, whatever is repeated.

The event and the record that remembers it go into their topics in one transaction, under one
transactional id for each topic: a second one at the same time fences the first, and then reads what
that has done. Whether a job takes the event now is for its watermark to say, as for any other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Message

from millstream.base.declared import LATE_SUFFIX
from millstream.base.errors import Rejected
from millstream.base.record import Record
from millstream.processing.kafka_clients import TopicNotFound
from millstream.processing.reading.quarantine import (
    REINJECTED_HEADER,
    LateEvent,
    chosen,
    events_in,
    reinjected_headers,
)
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.writing.row_transaction import Row, RowTransaction
from millstream.processing.writing.topic_write import TopicWrite

EVENTS_PER_TRANSACTION = 500
ANY_PARTITION = -1
NOW = 0  # librdkafka's word for it


class NoSuchEvent(Rejected):
    def __init__(self, *, topic: str, ids: Sequence[str]) -> None:
        super().__init__(f"the quarantine of {topic} has no event {', '.join(ids)}")
        self.topic, self.ids = topic, ids


class NoQuarantine(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"topic {topic} has no quarantine: no late event was kept so far")
        self.topic = topic


def read_quarantine(brokers: str, client: Mapping[str, str], topic: str) -> list[LateEvent]:
    read = TopicRead(brokers=brokers, topics=(f"{topic}{LATE_SUFFIX}",), client=client)
    try:
        return events_in(_records(read))
    except TopicNotFound:
        raise NoQuarantine(topic=topic) from None


def _records(read: TopicRead) -> Iterator[Record]:
    reader = RangeReader(read)
    for part, within in batch_ranges(read):
        for messages in reader.read(part, within):
            yield from map(_record_from, messages)


def _record_from(message: Message) -> Record:
    _, timestamp_ms = message.timestamp()
    return Record(
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),  # type: ignore[arg-type]  # values are bytes
        timestamp_ms=timestamp_ms,
    )


def reinject(
    brokers: str,
    client: Mapping[str, str],
    topic: str,
    ids: Iterable[str] | None = None,
    *,
    on_progress: Callable[[int], None] = lambda _count: None,
) -> list[str]:
    """The ids of the events that were put back now: those of `ids`, or all that wait."""
    write = TopicWrite(brokers=brokers, job=f"reinject.{topic}", client=client)
    transaction = RowTransaction(write, f"millstream.reinject.{topic}")
    transaction.open()
    events = read_quarantine(brokers, client, topic)
    wanted = None if ids is None else {*ids}
    if unknown := (wanted or set()) - {event.id for event in events}:
        raise NoSuchEvent(topic=topic, ids=sorted(unknown))
    waiting = chosen(events, wanted)
    for start in range(0, len(waiting), EVENTS_PER_TRANSACTION):
        some = waiting[start : start + EVENTS_PER_TRANSACTION]
        _put_back(transaction, some)
        on_progress(len(some))
    return [event.id for event in waiting]


def _put_back(transaction: RowTransaction, events: Sequence[LateEvent]) -> None:
    """All of them, or none."""
    transaction.begin()
    try:
        transaction.send(row for event in events for row in _rows(event))
        transaction.commit()
    except BaseException:  # Ctrl-C, too
        transaction.abort()
        raise


def _rows(event: LateEvent) -> tuple[Row, Row]:
    """The event, into the partition that it was in; and the memory of it."""
    headers = reinjected_headers(event)
    memory = [(REINJECTED_HEADER, event.id.encode())]
    return (
        (event.topic, event.key, event.value, headers, event.partition, NOW),
        (f"{event.topic}{LATE_SUFFIX}", event.id.encode(), None, memory, ANY_PARTITION, NOW),
    )
