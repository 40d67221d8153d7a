"""What the next run archives: where each partition goes on, and what stands in its way. Pure.

A gap is what retention deleted before it was archived; it is never passed over silently. A topic
of another id is another topic, whatever its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millstream.archive.manifest import ArchivedPartition, Manifest
from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import DAY_MS, MIB

# Large enough that a scan reads few files, small enough to be built in memory.
FILE_BYTES_MAX = 128 * MIB
FILE_RECORDS_MAX = 1_000_000
# A tail waits for a full file, but not so long that retention could come first.
TAIL_AGE_MS_MAX = DAY_MS


class TopicWasReplaced(Rejected):
    def __init__(self, *, topic: str, archived_id: str, found_id: str) -> None:
        super().__init__(
            f"Topic {topic} was deleted and created again: the archive is of id {archived_id}, the "
            f"topic has id {found_id}. Archive it to another place with --to; this one stays as "
            "it is"
        )
        self.topic, self.archived_id, self.found_id = topic, archived_id, found_id


class TopicIsShorter(Rejected):
    def __init__(self, *, topic: str, partition: int, archived_end: int, end: int) -> None:
        super().__init__(
            f"{topic}[{partition}] ends at offset {end}, but was archived up to {archived_end}: "
            "the broker has lost records, or is another one. Archive it elsewhere with --to"
        )
        self.topic, self.partition = topic, partition
        self.archived_end, self.end = archived_end, end


class GapBeforeArchive(Rejected):
    """Retention was quicker than the archive."""

    def __init__(self, *, topic: str, gaps: Mapping[int, OffsetRange]) -> None:
        named = ", ".join(f"{topic}[{number}] {gap}" for number, gap in sorted(gaps.items()))
        lost = sum(map(len, gaps.values()))
        super().__init__(
            f"{lost:,} offsets were deleted before they were archived: {named}. They are gone; to "
            "go on after them, and have the gap noted in the archive, pass --allow-gaps"
        )
        self.topic, self.gaps = topic, gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A topic as its broker shows it; `available` ends where committed data does."""

    topic: str
    topic_id: str
    config: Mapping[str, str] = field(default_factory=dict)
    available: Mapping[int, OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """A file is full when it has one of these; bytes are those of keys, values and headers."""

    records_max: int = FILE_RECORDS_MAX
    bytes_max: int = FILE_BYTES_MAX


def continue_with(manifest: Manifest | None, source: Source, *, allow_gaps: bool) -> Manifest:
    """The manifest to start from: it knows every partition, and every gap that is allowed."""
    if manifest is None:
        return _first_manifest(source)
    if manifest.topic_id != source.topic_id:
        raise TopicWasReplaced(
            topic=source.topic, archived_id=manifest.topic_id, found_id=source.topic_id
        )
    _check_ends(manifest, source)
    # A partition that was added after the first run is owed to the archive from its start.
    known = {n: manifest.partitions.get(n, nothing_from(0)) for n in source.available}
    gaps = _gaps(known, source)
    if gaps and not allow_gaps:
        raise GapBeforeArchive(topic=source.topic, gaps=gaps)
    noted = {number: known[number].with_gap(until=gap.end) for number, gap in gaps.items()}
    partitions = {**manifest.partitions, **known, **noted}
    return replace(manifest, config=dict(source.config), partitions=partitions)


def _first_manifest(source: Source) -> Manifest:
    """The first run takes what is there; what was deleted before it is not its gap."""
    return Manifest(
        topic=source.topic,
        topic_id=source.topic_id,
        config=dict(source.config),
        partitions={n: nothing_from(within.start) for n, within in source.available.items()},
    )


def nothing_from(start: int) -> ArchivedPartition:
    return ArchivedPartition(offsets=OffsetRange(start=start, end=start))


def _check_ends(manifest: Manifest, source: Source) -> None:
    for number, partition in sorted(manifest.partitions.items()):
        within = source.available.get(number, OffsetRange(start=0, end=0))
        if within.end < partition.offsets.end:
            raise TopicIsShorter(
                topic=source.topic,
                partition=number,
                archived_end=partition.offsets.end,
                end=within.end,
            )


def _gaps(known: Mapping[int, ArchivedPartition], source: Source) -> dict[int, OffsetRange]:
    return {
        number: OffsetRange(start=known[number].offsets.end, end=within.start)
        for number, within in source.available.items()
        if within.start > known[number].offsets.end
    }


def new_gaps(before: Manifest | None, after: Manifest) -> dict[int, OffsetRange]:
    known = before.partitions if before else {}
    return {
        number: partition.gaps[-1]
        for number, partition in after.partitions.items()
        if partition.gaps and (number not in known or known[number].gaps != partition.gaps)
    }


def left_to_archive(manifest: Manifest, source: Source) -> dict[int, OffsetRange]:
    """What each partition has beyond the archive; partitions that have nothing are left out."""
    ranges = {
        number: OffsetRange(start=manifest.partitions[number].offsets.end, end=within.end)
        for number, within in sorted(source.available.items())
    }
    return {number: within for number, within in ranges.items() if within}


def tail_age_ms_max(config: Mapping[str, str]) -> int:
    """How old the first record of a tail may get: well within what retention allows."""
    retention_ms = int(config.get("retention.ms", -1))
    return TAIL_AGE_MS_MAX if retention_ms < 0 else min(TAIL_AGE_MS_MAX, retention_ms // 2)


def must_write_tail(first_time_ms: int | None, *, age_ms_max: int, now_ms: int) -> bool:
    """Whether fewer records than a full file are written now. Without a time: they wait."""
    return first_time_ms is not None and now_ms - first_time_ms >= age_ms_max
