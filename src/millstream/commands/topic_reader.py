"""Reads a range of a partition for the archive: committed records only, none left out.

It ends at the end of the range and not before; what keeps it from there is an error, never a
shorter answer. Joins no group, and leaves no trace on the broker.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.archive.parquet import TIMESTAMP_TYPES, Columns
from millstream.base.errors import Retryable
from millstream.base.offsets import OffsetRange
from millstream.commands.cluster import Cluster
from millstream.commands.connecting import (
    ANSWER_SECONDS_MAX,
    NoAnswerInTime,
    Partition,
    Watch,
    bootstrap,
    client_config,
    error_from,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

POLL_SECONDS = 0.2
READ_RECORDS_MAX = 5_000
FETCH_BYTES_MAX = 8 << 20
OFFSET_IS_GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


class RetentionCameFirst(Retryable):
    def __init__(self, *, partition: Partition, offset: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} was deleted while the topic was being archived. Run the "
            "command again: it says what is missing"
        )
        self.partition, self.offset = partition, offset


class TopicReader:
    """One consumer, for one partition after another. Close it."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka import Consumer

        self._watch = Watch(cluster.brokers)
        self._consumer = Consumer(
            client_config(cluster.brokers, self._watch)
            | {
                "group.id": "millstream-cli",  # never joined, and never committed to
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                # An offset that is gone must not become another one silently.
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.message.max.bytes": FETCH_BYTES_MAX,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def read(self, part: Partition, within: OffsetRange) -> Iterator[Columns]:
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(part.topic, part.number, within.start)])
        at, heard = within.start, time.monotonic()
        while at < within.end:
            messages = self._consumer.consume(READ_RECORDS_MAX, POLL_SECONDS)
            records = [m for m in messages if m.error() is None and m.partition() == part.number]
            reached = self._reached(messages, part, at) if len(records) < len(messages) else at
            if records:
                reached = max(reached, (records[-1].offset() or 0) + 1)
                records = _before(within.end, records)
            if records:
                yield _columns(records)
            if reached > at:
                at, heard = reached, time.monotonic()
            elif time.monotonic() - heard > ANSWER_SECONDS_MAX:
                raise NoAnswerInTime(doing=f"read {part} from offset {at}")
            if not messages:
                self._watch.check()

    def _reached(self, messages: "Iterable[Message]", part: Partition, at: int) -> int:
        """Where the partition goes on after all that was skipped: markers and aborted data."""
        for message in messages:
            error = message.error()
            if error is None or message.partition() != part.number:
                continue
            if error.name() == "_PARTITION_EOF":
                at = max(at, message.offset() or 0)
            elif error.name() in OFFSET_IS_GONE:
                raise RetentionCameFirst(partition=part, offset=at)
            elif not error.retriable() and error.name() != "_ALL_BROKERS_DOWN":
                brokers = bootstrap(self._watch.brokers)
                raise error_from(error, doing=f"read {part}", brokers=brokers)
        return at


def _before(end: int, records: "list[Any]") -> "list[Any]":
    if records[-1].offset() < end:
        return records
    return [record for record in records if record.offset() < end]


def _columns(messages: "list[Any]") -> Columns:
    times = [message.timestamp() for message in messages]
    return Columns(
        offsets=[message.offset() for message in messages],
        times_ms=[time_ms if kind else None for kind, time_ms in times],
        timestamp_types=[TIMESTAMP_TYPES[kind] for kind, _ in times],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        headers=[message.headers() or () for message in messages],
    )
