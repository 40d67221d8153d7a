"""What the log remembers of each producer, so that a retried batch is stored once (KIP-98).

Per producer: its epoch, its last five batches, and where its open transaction began. A batch must
continue the sequence; one that is already there is answered with the offset it got; one that
leaves a gap is refused. Pure: it takes headers and times, and is saved to bytes and read back by
the caller.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from millstream.base.disk import Bytes
from millstream.base.errors import Corrupt, Rejected
from millstream.log.record_batch import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Marker,
    add_sequence,
)
from millstream.log.transaction_index import AbortedTransaction

# How many batches a producer may have in flight, so how many a retry can repeat.
WINDOW_BATCHES = 5

# A snapshot file: a head, then `count` entries, big-endian, in Kafka's format.
#
#   version           int16    1
#   crc               uint32   CRC-32C of all that follows it
#   count             int32
SNAPSHOT_HEAD = struct.Struct(">hIi")
SNAPSHOT_VERSION = 1
SNAPSHOT_CHECKED_FROM = 6
#   producer_id       int64
#   producer_epoch    int16
#   last_sequence     int32    -1: no batch in this epoch
#   last_offset       int64    -1: no batch in this epoch
#   offset_delta      int32    last offset minus first; -1: a marker came since
#   timestamp         int64    ms
#   coordinator_epoch int32
#   txn_first_offset  int64    -1: no transaction is open
#
# Kafka writes one entry per producer, its last batch. We write one per remembered batch, oldest
# first: Kafka's reader keeps the last, ours all five, so that a retry of any batch in flight is
# recognised also after a restart. Behind a marker there is the last batch alone, from which the
# sequence goes on, and nothing may repeat it: by its offset_delta it ends before it begins, so
# that no batch is like it, for Kafka's reader neither.
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
NOTHING_REPEATS = -1


class OutOfOrderSequence(Rejected):
    """A batch does not continue its producer's sequence: one before it is missing."""

    def __init__(self, *, producer_id: int, expected: int, got: int) -> None:
        super().__init__(
            f"producer {producer_id}: sequence {got} arrived where {expected} was expected; "
            "a batch before it did not"
        )
        self.producer_id, self.expected, self.got = producer_id, expected, got


class StaleProducerEpoch(Rejected):
    """A newer incarnation of this producer has written already."""

    def __init__(self, *, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(
            f"producer {producer_id}: epoch {epoch} is over, the current one is {current}"
        )
        self.producer_id, self.epoch, self.current = producer_id, epoch, current


class NotInTransaction(Rejected):
    """An ordinary batch from a producer that has a transaction open here."""

    def __init__(self, *, producer_id: int, first_offset: int) -> None:
        super().__init__(
            f"producer {producer_id}: has a transaction open since offset {first_offset}, and sent "
            "a batch outside of it"
        )
        self.producer_id, self.first_offset = producer_id, first_offset


class BadSnapshot(Corrupt):
    """A producer snapshot that cannot be read; the state is rebuilt from the log instead."""


class StoredBatch(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


NO_BATCH = StoredBatch(NO_SEQUENCE, NO_SEQUENCE, -1, 0, NO_TIMESTAMP)


class EndedTransaction(NamedTuple):
    """A transaction from its first record's offset to its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    # Of the log, once this transaction has ended.
    last_stable_offset: int
    is_commit: bool

    @property
    def aborted(self) -> AbortedTransaction:
        return AbortedTransaction(*self[:4])


# Not seen since the log was opened.
NOT_SEEN = -1
NO_OFFSET = -1
NO_COORDINATOR = -1


@dataclass(slots=True)
class Producer:
    """`seen_ms` is the broker's time at the last batch: a producer's own times can be any."""

    epoch: int
    seen_ms: int = NOT_SEEN
    window: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=WINDOW_BATCHES))
    coordinator_epoch: int = NO_COORDINATOR
    # The last batch before the last marker: the sequence goes on from it, nothing repeats it.
    before_marker: StoredBatch = NO_BATCH

    @property
    def last(self) -> StoredBatch:
        """A marker can begin an epoch: then there is no batch yet, and the first has sequence 0."""
        return self.window[-1] if self.window else self.before_marker

    def end_transaction(self, timestamp: int) -> None:
        """No batch of an ended transaction is sent again: its producer waited for all of them, or
        gave them up. librdkafka gives the sequences of those it gave up to the next transaction;
        taken for repeats, its records would be acknowledged and lost (docs/consistency.md).
        """
        self.before_marker = self.last._replace(timestamp=timestamp)
        self.window.clear()


class ProducerStates:
    """The producers of one partition. Owned by its PartitionLog."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Where the open transaction of each producer began: in order of that offset.
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._open.values()), None)

    def open_since(self, producer_id: int) -> int | None:
        return self._open.get(producer_id)

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """Whether the batch may be appended: the stored batch that it repeats, or None if new."""
        if header.producer_id == NO_PRODUCER_ID:
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Retention or expiry may have removed what came before: any start is accepted.
            return None
        self.check_epoch(header.producer_id, header.producer_epoch)
        if self._open and not header.is_transactional and header.producer_id in self._open:
            first_offset = self._open[header.producer_id]
            raise NotInTransaction(producer_id=header.producer_id, first_offset=first_offset)
        if header.producer_epoch > producer.epoch:
            self._expect(header, 0)
            return None
        for stored in producer.window:
            if (
                stored.first_sequence == header.base_sequence
                and stored.last_sequence == header.last_sequence
            ):
                return stored
        self._expect(header, add_sequence(producer.last.last_sequence, 1))
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """A batch or a marker of an epoch that is over must not be written any more."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise StaleProducerEpoch(producer_id=producer_id, epoch=epoch, current=producer.epoch)

    def _expect(self, header: BatchHeader, sequence: int) -> None:
        if header.base_sequence != sequence:
            raise OutOfOrderSequence(
                producer_id=header.producer_id, expected=sequence, got=header.base_sequence
            )

    def note(self, header: BatchHeader, *, now_ms: int = NOT_SEEN) -> None:
        """Remember a batch that was appended just now, or is read back from the log."""
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return
        producer = self._at_epoch(header)
        producer.seen_ms = now_ms
        if header.base_sequence != NO_SEQUENCE:  # the broker's own have none
            producer.window.append(
                StoredBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.last_offset,
                    header.last_offset_delta,
                    header.max_timestamp,
                )
            )
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    def note_marker(
        self, header: BatchHeader, marker: Marker, *, now_ms: int = NOT_SEEN
    ) -> EndedTransaction | None:
        """The same for a marker: the transaction that it ended here, if there was one."""
        producer = self._at_epoch(header)
        producer.seen_ms = now_ms
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.end_transaction(header.max_timestamp)
        first_offset = self._open.pop(header.producer_id, None)
        if first_offset is None:
            return None
        first_open = self.first_open_offset
        stable = header.last_offset + 1 if first_open is None else first_open
        return EndedTransaction(
            header.producer_id, first_offset, header.last_offset, stable, marker.is_commit
        )

    def _at_epoch(self, header: BatchHeader) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch)
        return producer

    def expire(self, *, now_ms: int, unused_ms: int) -> None:
        """Forget producers that sent nothing for `unused_ms`, counted from when we can know."""
        for producer_id, producer in list(self._producers.items()):
            if producer.seen_ms == NOT_SEEN:
                producer.seen_ms = now_ms
            elif now_ms - producer.seen_ms >= unused_ms and producer_id not in self._open:
                del self._producers[producer_id]

    def to_bytes(self) -> bytes:
        entries = b"".join(
            SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                stored.last_sequence,
                stored.last_offset,
                stored.offset_delta,
                stored.timestamp,
                producer.coordinator_epoch,
                self._open.get(producer_id, NO_OFFSET),
            )
            for producer_id, producer in self._producers.items()
            for stored in producer.window or (_unrepeatable(producer.before_marker),)
        )
        count = len(entries) // SNAPSHOT_ENTRY.size
        checked = count.to_bytes(4, "big") + entries
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(checked)) + checked

    @classmethod
    def from_bytes(cls, data: Bytes) -> "ProducerStates":
        if len(data) < SNAPSHOT_HEAD.size:
            raise BadSnapshot("too short")
        version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise BadSnapshot(f"version {version}")
        if crc32c(memoryview(data)[SNAPSHOT_CHECKED_FROM:]) != crc:
            raise BadSnapshot("checksum")
        if len(data) != SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size:
            raise BadSnapshot(f"{count} entries in {len(data)} bytes")
        states = cls()
        for entry in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size :]):
            states._restore(*entry)
        states._open = dict(sorted(states._open.items(), key=lambda item: item[1]))
        return states

    def _restore(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        open_since: int,
    ) -> None:
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = self._producers[producer_id] = Producer(epoch)
        producer.coordinator_epoch = coordinator_epoch
        if open_since != NO_OFFSET:
            self._open[producer_id] = open_since
        if last_offset == NO_OFFSET:
            if last_sequence != NO_SEQUENCE:
                raise BadSnapshot(f"producer {producer_id}: sequence {last_sequence} is nowhere")
            producer.before_marker = NO_BATCH._replace(timestamp=timestamp)
            return
        first_sequence = add_sequence(last_sequence, -offset_delta)
        stored = StoredBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp)
        if offset_delta == NOTHING_REPEATS:
            producer.before_marker = stored
        else:
            producer.window.append(stored)


def _unrepeatable(batch: StoredBatch) -> StoredBatch:
    """As the last batch before a marker is stored, if there is one in this epoch."""
    if batch.last_offset == NO_OFFSET:
        return batch
    return batch._replace(offset_delta=NOTHING_REPEATS)
