"""Reads the events topic: what is committed, in lists, from one offset to another. A thin shell.

Knows nothing of streams. Consumers are lent to one reader at a time, and fetch only while they are.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millstream.base.collector import collector_paused
from millstream.base.errors import Retryable
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    Topics,
    client_config,
    error_from,
    offset_bounds,
)
from millstream.base.offsets import OffsetRange
from millstream.eventsourcing.partition_state import ReadRecords

POLL_SECONDS = 0.2
RECORDS_AT_ONCE = 10_000
# Consumers that are kept for the next reader, of each kind.
IDLE_CONSUMERS_MAX = 4
# A range with no more offsets is read without running ahead of its reader.
NARROW_OFFSETS_MAX = 1_000
VISIBLE_PAUSE_SECONDS = 0.001
# The last event of a transaction says so: a marker is behind it, and no reader need wait to see
# that nothing else is there.
LAST_HEADER: Final = "last"
MARKER_OFFSETS: Final = 1

# Events are kept for ever: nothing else has them.
TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
CONSUMER = {
    "group.id": "millstream-events",  # asked for by the client; nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    # How long a fetch at the end of the log waits, and the next range with it.
    "fetch.wait.max.ms": 5,
    # With a full queue, librdkafka pauses before it fetches on: by default for a second.
    "fetch.queue.backoff.ms": 2,
}
WIDE = {"fetch.message.max.bytes": 8 << 20, "queued.min.messages": 100_000}
NARROW = {"fetch.message.max.bytes": 64 << 10, "queued.min.messages": 1}


class EventLog:
    """Thread-safe."""

    def __init__(self, client: Client, topic: str, *, partitions: int | None = None) -> None:
        self.client, self.topic = client, topic
        topics = Topics(client)
        self.partitions = topics.ensure(
            topic, partitions=partitions, config=TOPIC_CONFIG, holds="events"
        )
        self._lock = threading.Lock()
        self._idle: dict[bool, list[Any]] = {True: [], False: []}
        self._is_closed = False

    def place(self, partition: int) -> str:
        return f"{self.topic}[{partition}]"

    def committed(self, partition: int) -> OffsetRange:
        """From the oldest record to where every transaction before has ended, as of now."""
        with self._lent(is_narrow=True) as consumer:
            return offset_bounds(consumer, TopicPartition(self.topic, partition), self.client)

    def await_committed(self, partition: int, end: int) -> None:
        """Kafka answers a commit before its markers are written: until all readers see it."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.committed(partition).end < end:
            if time.monotonic() > until:
                raise self._not_reached(partition, f"what was committed up to {end} is not shown")
            time.sleep(VISIBLE_PAUSE_SECONDS)

    def scan(
        self, partition: int, within: OffsetRange, *, with_keys: bool = False
    ) -> Iterator[tuple[ReadRecords, int]]:
        """The committed records of the range, and how far it is read with them."""
        if within.start >= within.end:
            return
        is_narrow = within.end - within.start <= NARROW_OFFSETS_MAX
        with self._lent(is_narrow=is_narrow) as consumer:
            consumer.assign([TopicPartition(self.topic, partition, within.start)])
            try:
                yield from self._scan(consumer, partition, within, with_keys)
            finally:
                consumer.unassign()

    def _scan(
        self, consumer: Any, partition: int, within: OffsetRange, with_keys: bool
    ) -> Iterator[tuple[ReadRecords, int]]:
        at, until = within.start, time.monotonic() + PATIENCE_SECONDS
        while at < within.end:
            with collector_paused():
                messages = some_messages(consumer, POLL_SECONDS)
                records, reached = self._taken(messages, at, within)
                if with_keys:
                    records = _with_keys(records, messages)
            if reached > at:
                yield records, reached
                at, until = reached, time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > until:
                raise self._not_reached(partition, f"nothing came behind offset {at}")

    def _taken(
        self, messages: Sequence[Message], at: int, within: OffsetRange
    ) -> tuple[ReadRecords, int]:
        offsets, values, reached = split_messages(messages, self.client, self.topic)
        if offsets and offsets[-1] >= within.end:  # what has come since is not asked for
            wanted = bisect_left(offsets, within.end)
            offsets, values, reached = offsets[:wanted], values[:wanted], within.end
        return ReadRecords(offsets, values), max(at, reached)

    @contextmanager
    def _lent(self, *, is_narrow: bool) -> Iterator[Any]:
        with self._lock:
            idle = self._idle[is_narrow]
            consumer = idle.pop() if idle else None
        if consumer is None:
            kind = NARROW if is_narrow else WIDE
            consumer = Consumer(client_config(self.client) | CONSUMER | kind)
        try:
            yield consumer
        finally:
            with self._lock:
                is_kept = not self._is_closed and len(idle) < IDLE_CONSUMERS_MAX
                if is_kept:
                    idle.append(consumer)
            if not is_kept:
                consumer.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            consumers = [one for idle in self._idle.values() for one in idle]
            self._idle = {True: [], False: []}
        for consumer in consumers:
            consumer.close()

    def _not_reached(self, partition: int, reason: str) -> LogNotReached:
        doing = f"read {self.place(partition)}"
        brokers = str(self.client["bootstrap.servers"])
        return LogNotReached(brokers=brokers, doing=doing, reason=reason)


def _with_keys(records: ReadRecords, messages: Sequence[Message]) -> ReadRecords:
    keys = {message.offset(): message.key() for message in messages if message.error() is None}
    return replace(records, keys=[keys[offset] for offset in records.offsets])


def some_messages(consumer: Any, timeout: float, count: int = RECORDS_AT_ONCE) -> list[Message]:
    """Wait for one, and take all that have come with it."""
    messages: list[Message] = consumer.consume(1, timeout)
    if messages:
        messages += consumer.consume(count, 0)
    return messages


def split_messages(
    messages: Sequence[Message], client: Client, topic: str
) -> tuple[list[int], list[bytes], int]:
    """Of one partition: offsets, values, and where it goes on behind them; 0 if nobody knows."""
    reached = 0
    if any(map(Message.error, messages)):
        reached = max((end_told(one, client, topic) for one in messages if one.error()), default=0)
        messages = [message for message in messages if message.error() is None]
    offsets: list[Any] = [message.offset() for message in messages]
    values: list[Any] = [message.value() for message in messages]
    if messages:
        reached = max(reached, offsets[-1] + 1 + MARKER_OFFSETS * is_last(messages[-1]))
    return offsets, values, reached


def is_last(message: Message) -> bool:
    """Whether a marker must be behind it."""
    headers: Any = message.headers()
    return headers is not None and any(name == LAST_HEADER for name, _ in headers)


def end_told(message: Message, client: Client, topic: str) -> int:
    """Where the reader is at the end of what is committed; 0 of another event that will pass."""
    error = message.error()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:
        return message.offset() or 0
    found = error_from(error, client, doing=f"read {topic}")
    if not isinstance(found, Retryable):
        raise found
    return 0
