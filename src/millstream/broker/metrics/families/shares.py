"""Share groups (queues): what they hold, and what could not be delivered."""

from collections.abc import Iterator

from millstream.base.errors import MillstreamError
from millstream.broker.metrics.family import Readings, counter, gauge
from millstream.broker.node import Node
from millstream.broker.partition import ServedPartition
from millstream.broker.share.share_partition import SharePartition

# Group, topic and partition.
Labels = tuple[str, str, str]


def shares_of(node: Node) -> Iterator[tuple[Labels, SharePartition, ServedPartition]]:
    """Every partition that a share group has begun with."""
    for share in node.share_partitions:
        try:
            topic = node.topics.with_id(share.key.topic_id)
            partition = topic.partition(share.key.partition)
        except MillstreamError:
            continue  # deleted, and soon forgotten
        if share.records is not None:
            labels = (share.key.group_id, topic.name, str(share.key.partition))
            yield labels, share.records, partition


@gauge(
    "millstream_share_group_start_offset",
    "The first offset that the group is not done with.",
    "group",
    "topic",
    "partition",
)
def start_offset(node: Node) -> Readings:
    for labels, records, _ in shares_of(node):
        yield labels, records.start_offset


@gauge(
    "millstream_share_group_pending_records",
    "Offsets that were handed out, and are not done: acquired, or to be delivered again.",
    "group",
    "topic",
    "partition",
)
def pending(node: Node) -> Readings:
    for labels, records, _ in shares_of(node):
        in_flight = records.end_offset - records.start_offset
        yield labels, in_flight - records.complete_count


@counter("millstream_dead_letters_total", "Records that were written to a dead-letter topic.")
def dead_letters(node: Node) -> float:
    return node.share_partitions.dead_letter_count
