"""Archived records as they are written to a topic again. Pure but for reading the archive.

The order is the archive's, so that the n-th record of a partition is the same in every run: that
is what lets an interrupted restore go on by counting. Does not write: `commands/topic_restorer.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from millstream.archive.manifest import Manifest
from millstream.archive.reading import read_partition
from millstream.archive.selection import Selection, keeps_offsets
from millstream.archive.stores import Store
from millstream.base.quantity import INT64_MAX
from millstream.base.record import Header

if TYPE_CHECKING:
    import pyarrow

OFFSET_HEADER = "millstream.offset"
# librdkafka takes 0 for "now": the nearest time that it can send is a millisecond later.
TIME_MS_MIN = 1

# What would delete or change restored records: they are old, and keep the times they had.
RESTORING_CONFIG: Mapping[str, str] = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(INT64_MAX),
    "message.timestamp.after.max.ms": str(INT64_MAX),
}
# What belongs to the cluster that the topic was in.
CLUSTER_CONFIG = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


class RestoredRecord(NamedTuple):
    time_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def first_difference(
    due: Iterator[RestoredRecord],
    found: Iterable[tuple[int, RestoredRecord]],
    *,
    end: int,
    may_have_holes: bool,
) -> str | None:
    """Why what was found at offsets [0, end) is not what was due there; None if it is.

    Holes are what compaction makes. It never takes the last record.
    """
    at = 0
    for offset, record in found:
        if offset > at and not may_have_holes:
            return f"offset {at} has none"
        expected = next(islice(due, offset - at, None), None)
        if expected is None:
            return f"it has {end}, the archive fewer"
        if record != sent(expected):
            return f"offset {offset} has another one"
        at = offset + 1
    return f"offset {end - 1} has none" if at < end else None


def sent(record: RestoredRecord) -> RestoredRecord:
    """As it is in a topic after a client sent it."""
    return record._replace(time_ms=max(TIME_MS_MIN, record.time_ms or 0))


def restored_config(archived: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in archived.items() if name not in CLUSTER_CONFIG}
    return {**kept, **RESTORING_CONFIG}


def restored_records(
    store: Store, manifest: Manifest, partition: int, selection: Selection
) -> Iterator[RestoredRecord]:
    """In order; each with its old offset in a header, where it cannot have the same one again."""
    has_header = not keeps_offsets(manifest.partitions[partition], selection)
    for batch in read_partition(store, manifest, partition, selection):
        yield from _records(batch, has_header=has_header)


def _records(batch: "pyarrow.RecordBatch", *, has_header: bool) -> Iterator[RestoredRecord]:
    import pyarrow as pa

    offsets = batch.column("offset").to_pylist()
    times_ms = batch.column("timestamp").cast(pa.int64()).to_pylist()
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    rows = zip(offsets, times_ms, keys, values, _headers(batch), strict=True)
    for offset, time_ms, key, value, headers in rows:
        own = ((OFFSET_HEADER, b"%d" % offset),) if has_header else ()
        yield RestoredRecord(time_ms, key, value, headers + own)


def _headers(batch: "pyarrow.RecordBatch") -> Iterator[tuple[Header, ...]]:
    column = batch.column("headers")
    if not len(column.flatten()):  # most topics have none: spare the conversion
        return iter([()] * len(column))
    return (
        tuple((header["name"], header["value"]) for header in headers)
        for headers in column.to_pylist()
    )
