"""What is said of records that are held, as ShareAcknowledge carries it: runs of offsets.

Pure. The type of each offset comes from the application (accepted, released) or from the lock's
keeper (renewed); an offset that was handed out without a record is a gap.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from millstream.broker.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)


class Partition(NamedTuple):
    """A partition by its topic's id, as share groups name it."""

    topic_id: bytes
    number: int


class Place(NamedTuple):
    """Where a job lies."""

    partition: Partition
    offset: int


class Settlement(IntEnum):
    """Kafka's numbers (KIP-932, KIP-1222)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


Settlements = Mapping[Place, Settlement]


def acknowledged_topics(settlements: Settlements) -> list[AcknowledgeTopic]:
    """All of a request, partition by partition in order."""
    topics: dict[bytes, AcknowledgeTopic] = {}
    for partition, offsets in _by_partition(settlements).items():
        topic = topics.setdefault(partition.topic_id, AcknowledgeTopic(topic_id=partition.topic_id))
        batches = [*_runs(sorted(offsets.items()))]
        topic.partitions.append(
            AcknowledgePartition(partition_index=partition.number, acknowledgement_batches=batches)
        )
    return [*topics.values()]


def _by_partition(settlements: Settlements) -> dict[Partition, dict[int, Settlement]]:
    partitions: dict[Partition, dict[int, Settlement]] = {}
    for place, kind in sorted(settlements.items()):
        partitions.setdefault(place.partition, {})[place.offset] = kind
    return partitions


def _runs(offsets: Iterable[tuple[int, Settlement]]) -> Iterator[AcknowledgementBatch]:
    """Neighbours of one type are one batch."""
    run: AcknowledgementBatch | None = None
    for offset, kind in offsets:
        if run is not None and run.last_offset == offset - 1 and run.acknowledge_types == [kind]:
            run.last_offset = offset
            continue
        if run is not None:
            yield run
        run = AcknowledgementBatch(
            first_offset=offset, last_offset=offset, acknowledge_types=[int(kind)]
        )
    if run is not None:
        yield run
