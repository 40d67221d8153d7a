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
    "millstream_disk_full",
    "1 while the disk of the data directory has no room: less than 1 MiB is free, or writes are "
    "refused for lack of space; producers wait.",
)
def disk_full(node: Node) -> float:
    return float(node.directory.space.is_full)


@counter("millstream_disk_full_refusals_total", "Writes that were refused for lack of space.")
def disk_full_refusals(node: Node) -> float:
    return node.directory.space.refusals


@gauge(
    "millstream_read_only_partitions",
    "Logs that take no more records, as a write or sync failed; a restart checks them.",
)
def read_only_partitions(node: Node) -> float:
    return len(node.directory.read_only)


@gauge(
    "millstream_damaged_partitions",
    "Logs in which bytes were found that changed after they were written; they are not served.",
)
def damaged_partitions(node: Node) -> float:
    return len(node.directory.damaged)
