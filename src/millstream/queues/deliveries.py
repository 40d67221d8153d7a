"""From an answer to ShareFetch to the jobs in it, and the offsets where there is none.

Pure. The broker sends whole batches, and says which of their offsets are ours: only those count.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.base.record import Record
from millstream.broker.wire.message import Buffer, Records
from millstream.broker.wire.messages.share_fetch import PartitionData
from millstream.log.record_batch import check_batch, decode_records
from millstream.queues.acknowledgements import Partition, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record that the broker has locked for this worker."""

    place: Place
    count: int  # this is the count-th time that it was handed out
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """What one partition gave: jobs, and offsets that hold none (markers, compacted away)."""

    deliveries: tuple[Delivery, ...] = ()
    gaps: tuple[Place, ...] = ()


def acquired_from(partition: Partition, data: PartitionData) -> Acquired:
    counts = {
        offset: span.delivery_count
        for span in data.acquired_records
        for offset in range(span.first_offset, span.last_offset + 1)
    }
    if not counts:
        return Acquired()
    records = {one.offset: one for one in _records(data.records) if one.offset in counts}
    return Acquired(
        deliveries=tuple(
            Delivery(place=Place(partition, offset), count=counts[offset], record=records[offset])
            for offset in sorted(records)
        ),
        gaps=tuple(Place(partition, offset) for offset in sorted(counts.keys() - records.keys())),
    )


def _records(batches: Records) -> Iterator[Record]:
    """All records of whole batches; a batch that is cut off at the end is left out."""
    data = memoryview(_joined(batches))
    position = 0
    while position < len(data) and _is_whole(data[position:]):
        header = check_batch(data, position)
        if not header.is_control:
            yield from decode_records(data[position : position + header.size_bytes])
        position += header.size_bytes


def _joined(batches: Records) -> Buffer:
    if isinstance(batches, bytes | bytearray | memoryview):
        return batches
    return b"".join(batches or ())


def _is_whole(data: memoryview) -> bool:
    return len(data) >= 12 and 12 + int.from_bytes(data[8:12], "big") <= len(data)
