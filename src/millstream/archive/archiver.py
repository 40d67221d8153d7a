"""Cuts what is read of a partition into files, and puts them into the archive one by one.

Only full files are written; the tail waits for the next run unless it is wanted now. Takes
records from whoever reads the topic, and knows no broker.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from millstream.archive.manifest import ArchivedFile
from millstream.archive.parquet import Columns, FileBuilder, Origin
from millstream.archive.plan import FileLimits
from millstream.archive.topic_archive import TopicArchive
from millstream.base.offsets import OffsetRange

# Asked with the time of the tail's first record.
WantsTail = Callable[[int | None], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRun:
    """What one run did with one partition; `waiting` records are left for the next one."""

    partition: int
    offsets: OffsetRange
    files: tuple[ArchivedFile, ...] = ()
    waiting: int = 0

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def with_file(self, file: ArchivedFile) -> "PartitionRun":
        reached = OffsetRange(start=self.offsets.start, end=file.offsets.end)
        return replace(self, offsets=reached, files=(*self.files, file))


def archive_range(
    archive: TopicArchive,
    partition: int,
    within: OffsetRange,
    chunks: Iterable[Columns],
    *,
    limits: FileLimits,
    wants_tail: WantsTail,
) -> PartitionRun:
    """`chunks` has every record in `within`, and ends only when all of it was read."""
    origin = Origin(
        topic=archive.manifest.topic, topic_id=archive.manifest.topic_id, partition=partition
    )
    run = PartitionRun(
        partition=partition, offsets=OffsetRange(start=within.start, end=within.start)
    )
    builder = FileBuilder(origin, within.start, limits)
    for chunk in chunks:
        rest = chunk
        while len(rest):
            rest = builder.add(rest)
            if builder.is_full:
                run = _write(archive, builder, run)
                builder = FileBuilder(origin, run.offsets.end, limits)
    if not builder.records:
        return _pass_over(archive, run, until=within.end)
    if wants_tail(builder.first_time_ms):
        return _write(archive, builder, run, end=within.end)
    return replace(run, waiting=builder.records)


def _write(
    archive: TopicArchive, builder: FileBuilder, run: PartitionRun, *, end: int | None = None
) -> PartitionRun:
    file, content = builder.finish(end=end)
    archive.append(run.partition, file, content)
    return run.with_file(file)


def _pass_over(archive: TopicArchive, run: PartitionRun, *, until: int) -> PartitionRun:
    if run.offsets.end < until:
        archive.pass_over(run.partition, until=until)
    return replace(run, offsets=OffsetRange(start=run.offsets.start, end=until))
