"""What the log remembers of each producer, so that a retried batch is stored once (KIP-98).

Per producer: its epoch and its last five batches. A batch must continue the sequence; one that
is already there is answered with the offset it got; one that leaves a gap is refused. Pure: it
takes headers and times, and is saved to bytes and read back by the caller.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from millstream.base.disk import Bytes
from millstream.base.errors import Corrupt, Rejected
from millstream.log.record_batch import NO_PRODUCER_ID, BatchHeader, add_sequence

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
#   last_sequence     int32
#   last_offset       int64
#   offset_delta      int32    last offset minus first
#   timestamp         int64    ms
#   coordinator_epoch int32
#   txn_first_offset  int64    -1: no transaction is open
#
# Kafka writes one entry per producer, its last batch. We write one per remembered batch, oldest
# first: Kafka's reader keeps the last, ours all five, so that a retry of any batch in flight is
# recognised also after a restart.
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


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


# Not seen since the log was opened.
NOT_SEEN = -1


@dataclass(slots=True)
class Producer:
    """`seen_ms` is the broker's time at the last batch: a producer's own times can be any."""

    epoch: int
    seen_ms: int = NOT_SEEN
    window: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=WINDOW_BATCHES))

    @property
    def last(self) -> StoredBatch:
        return self.window[-1]


class ProducerStates:
    """The producers of one partition. Owned by its PartitionLog."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """Whether the batch may be appended: the stored batch that it repeats, or None if new."""
        if header.producer_id == NO_PRODUCER_ID:
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Retention or expiry may have removed what came before: any start is accepted.
            return None
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                current=producer.epoch,
            )
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

    def _expect(self, header: BatchHeader, sequence: int) -> None:
        if header.base_sequence != sequence:
            raise OutOfOrderSequence(
                producer_id=header.producer_id, expected=sequence, got=header.base_sequence
            )

    def note(self, header: BatchHeader, *, now_ms: int = NOT_SEEN) -> None:
        """Remember a batch that was appended just now, or is read back from the log."""
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch)
        producer.seen_ms = now_ms
        producer.window.append(
            StoredBatch(
                header.base_sequence,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )

    def expire(self, *, now_ms: int, unused_ms: int) -> None:
        """Forget producers that sent nothing for `unused_ms`, counted from when we can know."""
        for producer_id, producer in list(self._producers.items()):
            if producer.seen_ms == NOT_SEEN:
                producer.seen_ms = now_ms
            elif now_ms - producer.seen_ms >= unused_ms:
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
                -1,
                -1,
            )
            for producer_id, producer in self._producers.items()
            for stored in producer.window
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
            producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, _, _ = entry
            producer = states._producers.get(producer_id)
            if producer is None or producer.epoch != epoch:
                producer = states._producers[producer_id] = Producer(epoch)
            first_sequence = add_sequence(last_sequence, -offset_delta)
            producer.window.append(
                StoredBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp)
            )
        return states
