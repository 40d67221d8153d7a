"""Writes restored records to a topic, each once and in order.

The n-th record of a partition gets offset n. So the end of the topic says how much of a restore
is done, and an interrupted one goes on there, after everything that is there was compared with
the archive. Every acknowledged offset is compared with the one that is due: another writer is
noticed at its first record. Uses no transactions, which would take offsets for their markers.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.archive.parquet import Columns
from millstream.archive.restored import TIME_MS_MIN, RestoredRecord, first_difference
from millstream.base.errors import MillstreamError, Rejected
from millstream.base.offsets import OffsetRange
from millstream.commands.cluster import Cluster
from millstream.commands.connecting import Partition, Watch, bootstrap, client_config, error_from
from millstream.commands.produce import Compression, batch_bytes_max
from millstream.commands.topic_reader import RetentionCameFirst, TopicReader

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

POLL_EVERY_RECORDS = 1_000

Records = Iterator[RestoredRecord]


class HoldsOtherRecords(Rejected):
    def __init__(self, *, partition: Partition, reason: str) -> None:
        super().__init__(
            f"{partition} holds records that this restore did not write ({reason}). Restore to a "
            "new topic with --to-topic"
        )
        self.partition, self.reason = partition, reason


class AnotherWriter(Rejected):
    def __init__(self, *, partition: Partition, expected: int, found: int) -> None:
        super().__init__(
            f"{partition}: a restored record got offset {found}, not {expected}: something else "
            "writes to the topic. Stop it, delete the topic, and restore again"
        )
        self.partition, self.expected, self.found = partition, expected, found


class Restorer:
    """Writes to one topic. `due` is the offset that the next acknowledged record must have."""

    def __init__(self, cluster: Cluster, target: str, compression: Compression) -> None:
        from confluent_kafka import Producer

        self._cluster = cluster
        self.target = target
        self._watch = Watch(cluster.brokers)
        self._failure: MillstreamError | None = None
        self._reader: TopicReader | None = None
        self.due: dict[int, int] = {}
        self.restored = 0
        self.moved_times = 0
        config = _producer_config(cluster, self._watch, compression)
        config |= {"batch.size": batch_bytes_max(cluster, target), "on_delivery": self._on_report}
        self._producer = Producer(config)

    def check(
        self, number: int, records: Records, *, done: int, advance: Callable[[int], None]
    ) -> None:
        """The records that are there, offsets [0, done), must be the first ones of `records`."""
        if not done:
            return
        part = Partition(self.target, number)
        found = self._found(part, done, advance)
        has_holes = self._is_compacted
        reason = first_difference(records, found, end=done, may_have_holes=has_holes)
        if reason is not None:
            raise HoldsOtherRecords(partition=part, reason=reason)

    def _found(
        self, part: Partition, done: int, advance: Callable[[int], None]
    ) -> Iterator[tuple[int, RestoredRecord]]:
        if self._reader is None:
            self._reader = TopicReader(self._cluster)
        try:
            for columns in self._reader.read(part, OffsetRange(start=0, end=done)):
                yield from zip(columns.offsets, _records(columns), strict=True)
                advance(len(columns))
        except RetentionCameFirst as error:
            reason = f"offset {error.offset} was deleted, and cannot be compared"
            raise HoldsOtherRecords(partition=part, reason=reason) from None

    @cached_property
    def _is_compacted(self) -> bool:
        policy = self._cluster.configs([self.target])[self.target]["cleanup.policy"]
        return "compact" in policy.value

    def restore(
        self, number: int, records: Records, *, done: int, advance: Callable[[int], None]
    ) -> None:
        """Write what comes after the first `done` records: those are there (`check`)."""
        self.due[number] = done
        records = islice(records, done, None)
        for record in islice(records, 1):
            self._send(number, record)
            self.flush()  # alone: if another writer is there, one record tells
        for count, record in enumerate(records, start=1):
            self._send(number, record)
            if count % POLL_EVERY_RECORDS == 0:
                self._poll(0)
                advance(POLL_EVERY_RECORDS)

    def _send(self, number: int, record: RestoredRecord) -> None:
        time_ms = record.time_ms or 0
        if time_ms < TIME_MS_MIN:
            time_ms = TIME_MS_MIN
            self.moved_times += 1
        while True:
            try:
                self._producer.produce(
                    self.target,
                    partition=number,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp=time_ms,
                )
            except BufferError:  # the client's queue is full: wait until some are delivered
                self._poll(0.5)
                self._watch.check()
            else:
                return

    def _on_report(self, error: "KafkaError | None", message: "Message") -> None:
        number, found = message.partition() or 0, message.offset()
        if self._failure is not None:
            return
        if error is None and found == self.due[number]:
            self.due[number] += 1
            self.restored += 1
        else:
            self._failure = self._failure_from(error, Partition(self.target, number), found)

    def _failure_from(
        self, error: "KafkaError | None", part: Partition, found: int | None
    ) -> MillstreamError:
        if error is None:
            expected = self.due[part.number]
            return AnotherWriter(partition=part, expected=expected, found=found or 0)
        brokers = bootstrap(self._watch.brokers)
        return error_from(error, doing=f"restore {part}", brokers=brokers)

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._raise_failure()

    def flush(self) -> None:
        while self._producer.flush(0.5):
            self._raise_failure()
            self._watch.check()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """What was not sent yet is dropped: the next run sends it."""
        self._producer.purge()
        self._producer.flush(1.0)
        if self._reader is not None:
            self._reader.close()


def _producer_config(cluster: Cluster, watch: Watch, compression: Compression) -> dict[str, Any]:
    return client_config(cluster.brokers, watch) | {
        "acks": "all",
        "enable.idempotence": True,
        # A record that the broker refuses must not be passed over by the next ones.
        "enable.gapless.guarantee": True,
        "message.timeout.ms": 0,
        "compression.type": compression.value,
        "linger.ms": 20,
        "message.max.bytes": 1_000_000_000,
    }


def _records(columns: Columns) -> Iterator[RestoredRecord]:
    rows = zip(columns.times_ms, columns.keys, columns.values, columns.headers, strict=True)
    return (RestoredRecord(at, key, value, tuple(headers)) for at, key, value, headers in rows)
