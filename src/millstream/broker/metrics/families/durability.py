"""Syncs, and the disk."""

import contextlib

from millstream.base.errors import MillstreamError
from millstream.broker.metrics.family import Readings, counter, gauge, histogram
from millstream.broker.metrics.histogram import Histogram
from millstream.broker.node import Node


@histogram("millstream_sync_duration_seconds", "How long one sync of a segment took.")
def sync_duration(node: Node) -> Histogram:
    return node.commit.counts.durations


@histogram(
    "millstream_sync_size_bytes",
    "How much one sync made durable, of all producers that waited for it.",
)
def sync_size(node: Node) -> Histogram:
    return node.commit.counts.sizes


@counter("millstream_sync_failures_total", "Syncs that failed; each makes a log read-only.")
def sync_failures(node: Node) -> float:
    return node.commit.counts.failures


@gauge(
    "millstream_unsynced_bytes",
    "Written, not yet synced (limit: unsynced_bytes_max, then producers wait).",
)
def unsynced_bytes(node: Node) -> float:
    return node.commit.unsynced_bytes


@gauge("millstream_disk_free_bytes", "Free space where the data directory is.")
def disk_free(node: Node) -> Readings:
    with contextlib.suppress(MillstreamError, OSError):  # the others are wanted all the more
        yield (), node.directory.disk.free_bytes(node.directory.path)


@gauge(
    "millstream_read_only_partitions",
    "Logs that take no more records, as a write or sync failed; a restart checks them.",
)
def read_only_partitions(node: Node) -> float:
    return sum(1 for log in node.directory.logs.values() if log.failure is not None)
