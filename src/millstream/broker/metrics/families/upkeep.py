"""What the broker does by itself: compaction and retention."""

from millstream.broker.metrics.families.partitions import partitions_of
from millstream.broker.metrics.family import Readings, counter, gauge
from millstream.broker.node import Node


@counter("millstream_compactions_total", "Cleanings of a log that were done.")
def compactions(node: Node) -> float:
    return node.compactor.totals.cleanings


@counter("millstream_compaction_failures_total", "Cleanings that failed; tried again later.")
def compaction_failures(node: Node) -> float:
    return node.compactor.totals.failures


@counter("millstream_compaction_seconds_total", "Time that cleanings took.")
def compaction_seconds(node: Node) -> float:
    return node.compactor.totals.seconds


@counter("millstream_compaction_read_bytes_total", "Bytes that cleanings have read.")
def compaction_read(node: Node) -> float:
    return node.compactor.totals.bytes_read


@counter("millstream_compaction_written_bytes_total", "Bytes that cleanings have written.")
def compaction_written(node: Node) -> float:
    return node.compactor.totals.bytes_written


@counter("millstream_compaction_saved_bytes_total", "Bytes by which cleaned logs became smaller.")
def compaction_saved(node: Node) -> float:
    return node.compactor.totals.bytes_saved


@counter("millstream_compaction_removed_records_total", "Records that cleanings have dropped.")
def compaction_removed(node: Node) -> float:
    return node.compactor.totals.records_removed


@gauge(
    "millstream_partition_dirty_ratio",
    "Of a compacted log, which part of what may be cleaned was not cleaned yet.",
    "topic",
    "partition",
)
def dirty_ratio(node: Node) -> Readings:
    for labels, partition in partitions_of(node):
        if partition.log.config.is_compacted and not node.topics.named(labels[0]).is_internal:
            yield labels, node.compactor.dirty_ratio(partition)


@counter("millstream_retention_deleted_segments_total", "Segments that retention has deleted.")
def retention_segments(node: Node) -> float:
    return node.metrics.retention_segments


@counter("millstream_retention_deleted_bytes_total", "Bytes of these segments.")
def retention_bytes(node: Node) -> float:
    return node.metrics.retention_bytes
