"""Topics and partitions: what they hold, what goes in and out."""

from collections.abc import Callable, Iterator

from millstream.broker.metrics.family import Readings, counter, gauge
from millstream.broker.node import Node
from millstream.broker.partition import ServedPartition

Labels = tuple[str, str]


def partitions_of(node: Node) -> Iterator[tuple[Labels, ServedPartition]]:
    for topic in node.topics:
        for number, partition in enumerate(topic.partitions):
            yield (topic.name, str(number)), partition


def _per_topic(node: Node, value_of: Callable[[ServedPartition], int]) -> Readings:
    """Not of the broker's own topics, which have other ways in."""
    for topic in node.topics:
        if topic.is_internal:
            continue
        yield (topic.name,), sum(map(value_of, topic.partitions))


@gauge("millstream_topics", "Topics, the broker's own included.")
def topics(node: Node) -> float:
    return len(node.topics)


@gauge("millstream_partitions", "Partitions of all topics.")
def partitions(node: Node) -> float:
    return sum(len(topic.partitions) for topic in node.topics)


@counter("millstream_topic_received_records_total", "Records appended.", "topic")
def received_records(node: Node) -> Readings:
    return _per_topic(node, lambda one: one.received_records)


@counter("millstream_topic_received_bytes_total", "Bytes of these, as stored.", "topic")
def received_bytes(node: Node) -> Readings:
    return _per_topic(node, lambda one: one.received_bytes)


@counter("millstream_topic_sent_bytes_total", "Bytes of record batches sent to consumers.", "topic")
def sent_bytes(node: Node) -> Readings:
    return _per_topic(node, lambda one: one.sent_bytes)


@gauge("millstream_partition_size_bytes", "Bytes of its segments on disk.", "topic", "partition")
def partition_size(node: Node) -> Readings:
    for labels, partition in partitions_of(node):
        yield labels, partition.log.size_bytes


@gauge("millstream_partition_segments", "Files of its log.", "topic", "partition")
def partition_segments(node: Node) -> Readings:
    for labels, partition in partitions_of(node):
        yield labels, partition.log.segment_count


@gauge("millstream_partition_start_offset", "The first offset that is kept.", "topic", "partition")
def start_offset(node: Node) -> Readings:
    for labels, partition in partitions_of(node):
        yield labels, partition.log.start_offset


@gauge(
    "millstream_partition_high_watermark", "The end of what consumers see.", "topic", "partition"
)
def high_watermark(node: Node) -> Readings:
    for labels, partition in partitions_of(node):
        yield labels, partition.log.high_watermark


@gauge(
    "millstream_partition_last_stable_offset",
    "The end of what read_committed consumers see; it stands still while a transaction is open.",
    "topic",
    "partition",
)
def last_stable_offset(node: Node) -> Readings:
    for labels, partition in partitions_of(node):
        yield labels, partition.log.last_stable_offset
