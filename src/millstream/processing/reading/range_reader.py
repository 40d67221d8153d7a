"""Reads a range of a partition with librdkafka: every record in it, and none beyond.

It ends at the end of the range and not before; what keeps it from there is an error, never a
shorter answer. Joins no group, and leaves no trace on the broker. Gaps are normal: compaction,
transaction markers and aborted records leave offsets without a record. What retention has deleted
comes from the archive, if the read names one.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millstream.base.collector import collector_paused
from millstream.base.offsets import OffsetRange
from millstream.processing.kafka_clients import (
    PATIENCE_SECONDS,
    BrokerNotReached,
    client_config,
    error_from,
    translated,
)
from millstream.processing.reading.archived_records import archive_at
from millstream.processing.reading.offset_plan import DataLost, Partition
from millstream.processing.reading.topic_read import TopicRead

POLL_SECONDS = 0.02
POLL_RECORDS_MAX = 10_000
# What goes to Spark at once: large enough for Arrow to pay, small enough to be in memory twice.
BATCH_RECORDS_MAX = 50_000
BATCH_BYTES_MAX = 32 << 20
OFFSET_IS_GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


class _Consumers(threading.local):
    """Those of one thread: a consumer is assigned to one reader at a time.

    A worker of Spark runs one task after another, and lives long: the connection is kept. In the
    driver every job has a thread of its own.
    """

    def __init__(self) -> None:
        self.by_config: dict[frozenset[tuple[str, Any]], Consumer] = {}


_consumers = _Consumers()


def consumer_for(read: TopicRead) -> Consumer:
    config = {
        "group.id": "millstream-processing",  # never joined, and never committed to
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if read.read_committed else "read_uncommitted",
        # An offset that is gone must not become another one silently.
        "auto.offset.reset": "error",
        "check.crcs": True,
        # The records of a range are there: nothing is gained by waiting at the broker. The next
        # range cannot be asked for while this one's last fetch waits at the end of the log.
        "fetch.wait.max.ms": 5,
        "fetch.message.max.bytes": 8 << 20,
        # With a full queue, librdkafka pauses before it fetches on: by default for a second, in
        # which a reader that is quick empties it and stands idle.
        "fetch.queue.backoff.ms": 5,
        **read.client,
    }
    key = frozenset({**config, "brokers": read.brokers}.items())
    known = _consumers.by_config
    if key not in known:
        known[key] = Consumer(client_config(read.brokers, {}) | config)
    return known[key]


class RangeReader:
    """Reads one range after another for one read."""

    def __init__(self, read: TopicRead) -> None:
        self._read = read
        self._consumer = consumer_for(read)

    def read(self, part: Partition, within: OffsetRange) -> Iterator[list[Message]]:
        """The records of the range in order, in lists that are large but not too large."""
        try:
            yield from _gathered(self._pieces(part, within))
        finally:
            self._consumer.unassign()

    def _pieces(self, part: Partition, within: OffsetRange) -> Iterator[list[Message]]:
        """What is archived and no longer in the log, then the log."""
        archived = self._archived(part, within)
        if archived:
            yield from archive_at(self._read.archive).records(part, archived)
        in_log = OffsetRange(start=archived.end, end=within.end)
        if in_log:
            yield from self._polled(part, in_log)

    def _archived(self, part: Partition, within: OffsetRange) -> OffsetRange:
        log_start = self._log_start(part) if self._read.archive else within.start
        end = max(within.start, min(within.end, log_start))
        return OffsetRange(start=within.start, end=end)

    def _polled(self, part: Partition, within: OffsetRange) -> Iterator[list[Message]]:
        self._assign(part, within.start)
        at, heard = within.start, time.monotonic()
        while at < within.end:
            wanted = min(POLL_RECORDS_MAX, within.end - at)
            with collector_paused():
                messages = self._consumer.consume(wanted, POLL_SECONDS)
            records, reached = self._taken(part, within, at, messages)
            if records:
                yield records
            if reached > at:
                at, heard = reached, time.monotonic()
            elif time.monotonic() - heard > PATIENCE_SECONDS:
                doing = f"read {part} from offset {at}"
                raise BrokerNotReached(brokers=self._read.brokers, doing=doing)

    def _assign(self, part: Partition, offset: int) -> None:
        self._consumer.assign([TopicPartition(part.topic, part.number, offset)])

    def _taken(
        self, part: Partition, within: OffsetRange, at: int, messages: list[Message]
    ) -> tuple[list[Message], int]:
        """The records of the range among what came, and how far the partition is read now."""
        records, reached = messages, at
        if any(map(Message.error, messages)):
            records = [message for message in messages if message.error() is None]
            reached = self._events(part, at, messages)
        if records:
            last = records[-1].offset() or 0
            reached = max(reached, last + 1)
            if last >= within.end:
                records = [record for record in records if (record.offset() or 0) < within.end]
        return records, reached

    def _events(self, part: Partition, at: int, messages: list[Message]) -> int:
        """Where the partition goes on after all that was skipped: markers and aborted data."""
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.name() == "_PARTITION_EOF":
                at = max(at, message.offset() or 0)
            elif error.name() in OFFSET_IS_GONE:
                at = max(at, self._after_loss(part, at))
            else:
                self._require_passing(error, doing=f"read {part} from offset {at}")
        return at

    def _after_loss(self, part: Partition, at: int) -> int:
        """Where to go on after records that are gone, if that is what the reader chose."""
        start = self._log_start(part)
        if self._read.on_loss == "fail":
            lost = OffsetRange(start=at, end=start)
            raise DataLost(losses={str(part): f"offsets {lost} were deleted by retention"})
        self._assign(part, start)
        return start

    def _log_start(self, part: Partition) -> int:
        start, _ = translated(
            lambda: self._consumer.get_watermark_offsets(
                TopicPartition(*part), timeout=PATIENCE_SECONDS
            ),
            doing=f"find the start of {part}",
            brokers=self._read.brokers,
        )
        return int(start)

    def _require_passing(self, error: KafkaError, *, doing: str) -> None:
        """A lost connection comes back; anything else would stay."""
        if not error.retriable() and error.name() not in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
            raise error_from(error, doing=doing, brokers=self._read.brokers)


def _gathered(polls: Iterator[list[Message]]) -> Iterator[list[Message]]:
    """Small polls together, up to the limits of a batch."""
    together: list[Message] = []
    size_bytes = 0
    for records in polls:
        together += records
        size_bytes += sum(map(len, records))
        if len(together) >= BATCH_RECORDS_MAX or size_bytes >= BATCH_BYTES_MAX:
            yield together
            together, size_bytes = [], 0
    if together:
        yield together
