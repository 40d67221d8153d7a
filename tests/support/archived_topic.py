"""A topic in memory that can be archived: no broker, no client, every offset under control."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.archive.archiver import PartitionRun, archive_range
from millstream.archive.parquet import Columns
from millstream.archive.plan import FileLimits, Source, left_to_archive
from millstream.archive.reading import read_partition
from millstream.archive.selection import Selection
from millstream.archive.stores import Store
from millstream.archive.topic_archive import TopicArchive, load_manifest
from millstream.base.offsets import OffsetRange
from millstream.base.record import Record

TIME_MS = 1_750_000_000_000
CHUNK_RECORDS = 3


@dataclass
class ArchivableTopic:
    """`partitions` are records by number; an offset without a record is what compaction left."""

    partitions: dict[int, list[Record]]
    ends: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    name: str = "orders"
    id: str = "id-1"
    config: dict[str, str] = field(default_factory=dict)

    def source(self) -> Source:
        return Source(
            topic=self.name,
            topic_id=self.id,
            config=self.config,
            available={number: self._available(number) for number in self.partitions},
        )

    def _available(self, number: int) -> OffsetRange:
        records = self.partitions[number]
        end = self.ends.get(number, records[-1].offset + 1 if records else 0)
        return OffsetRange(start=self.starts.get(number, 0), end=end)

    def chunks(self, number: int, within: OffsetRange) -> Iterator[Columns]:
        records = [one for one in self.partitions[number] if one.offset in within]
        for first in range(0, len(records), CHUNK_RECORDS):
            yield to_columns(records[first : first + CHUNK_RECORDS])


def numbered_records(count: int, *, start: int = 0) -> list[Record]:
    return [
        Record(key=b"k%d" % n, value=b"v%d" % n, timestamp_ms=TIME_MS + n, offset=n)
        for n in range(start, start + count)
    ]


def to_columns(records: Sequence[Record]) -> Columns:
    return Columns(
        offsets=[one.offset for one in records],
        times_ms=[None if one.timestamp_ms < 0 else one.timestamp_ms for one in records],
        timestamp_types=[None if one.timestamp_ms < 0 else "CreateTime" for one in records],
        keys=[one.key for one in records],
        values=[one.value for one in records],
        headers=[one.headers for one in records],
    )


def run_archive(
    store: Store,
    topic: ArchivableTopic,
    *,
    records_max: int = 4,
    with_tail: bool = True,
    allow_gaps: bool = False,
) -> list[PartitionRun]:
    """One whole run, as the command makes it."""
    archive = TopicArchive(store, topic.name)
    source = topic.source()
    archive.begin(source, allow_gaps=allow_gaps)
    return [
        archive_range(
            archive,
            number,
            within,
            topic.chunks(number, within),
            limits=FileLimits(records_max=records_max),
            wants_tail=lambda _first_time_ms: with_tail,
        )
        for number, within in left_to_archive(archive.manifest, source).items()
    ]


def read_archive(store: Store, topic: str = "orders") -> dict[int, list[Record]]:
    """Every archived record, by partition."""
    manifest = load_manifest(store, topic)
    assert manifest is not None
    return {
        number: [
            record_from(row)
            for batch in read_partition(store, manifest, number, Selection())
            for row in batch.to_pylist()
        ]
        for number in manifest.partitions
    }


def record_from(row: dict[str, Any]) -> Record:
    at = row["timestamp"]
    return Record(
        key=row["key"],
        value=row["value"],
        headers=tuple((one["name"], one["value"]) for one in row["headers"]),
        timestamp_ms=-1 if at is None else round(at.timestamp() * 1000),
        offset=row["offset"],
    )
