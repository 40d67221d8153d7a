"""What an archive holds of one topic: the files that count, their ranges and checksums. Pure.

A file that is not in the manifest is not in the archive. The manifest grows by whole files, and
its revision by one with every change, so that a second writer is noticed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.base.errors import Corrupt, Rejected
from millstream.base.offsets import OffsetRange

FORMAT = 1


class DamagedManifest(Corrupt):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: not a manifest ({problem}); bring back the file from a copy")
        self.place, self.problem = place, problem


class NewerArchive(Rejected):
    def __init__(self, *, place: str, format: int) -> None:
        super().__init__(
            f"{place} has format {format}, this version reads up to {FORMAT}: upgrade millstream"
        )
        self.place, self.format = place, format


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One Parquet file: every record that a reader of committed data finds in `offsets`.

    Fewer records than offsets are no loss: compaction, aborted transactions and markers leave
    offsets without a record. The times are those of its oldest and newest record.
    """

    offsets: OffsetRange
    records: int
    size_bytes: int
    sha256: str
    time_min_ms: int | None
    time_max_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """`offsets` is what is covered, files in order; `gaps` were lost before they were archived."""

    offsets: OffsetRange
    files: tuple[ArchivedFile, ...] = ()
    gaps: tuple[OffsetRange, ...] = ()

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def is_complete(self) -> bool:
        """A record at every offset from 0 on: a copy of it has the same offsets."""
        return self.offsets.start == 0 and self.records == self.offsets.end

    def with_file(self, file: ArchivedFile) -> "ArchivedPartition":
        if file.offsets.start != self.offsets.end:
            raise ValueError(f"{file.offsets} does not follow {self.offsets}")
        return replace(self._reaching(file.offsets.end), files=(*self.files, file))

    def with_gap(self, *, until: int) -> "ArchivedPartition":
        gap = OffsetRange(start=self.offsets.end, end=until)
        return replace(self._reaching(until), gaps=(*self.gaps, gap))

    def lacks(self, offsets: OffsetRange) -> list[OffsetRange]:
        """What of `offsets` can be put in: before the start, in gaps, and right at the end."""
        start, end = self.offsets.start, self.offsets.end
        open_ranges = [OffsetRange(start=0, end=start), *self.gaps]
        if offsets.start <= end:
            open_ranges.append(OffsetRange(start=end, end=max(end, offsets.end)))
        found = [_common(offsets, one) for one in open_ranges]
        return [one for one in found if one]

    def with_found(self, file: ArchivedFile) -> "ArchivedPartition":
        """A file of which every offset is lacking (`lacks`)."""
        if file.offsets.start == self.offsets.end:
            return self.with_file(file)
        start = min(file.offsets.start, self.offsets.start)
        before = OffsetRange(start=file.offsets.end, end=self.offsets.start)
        gaps = [rest for gap in self.gaps for rest in _without(gap, file.offsets)]
        return replace(
            self,
            offsets=OffsetRange(start=start, end=self.offsets.end),
            files=tuple(sorted((*self.files, file), key=lambda one: one.offsets.start)),
            gaps=(before, *gaps) if before else tuple(gaps),
        )

    def without_records(self, *, until: int) -> "ArchivedPartition":
        """Up to `until` there was nothing to read: markers, or what was aborted or compacted."""
        return self._reaching(until)

    def _reaching(self, end: int) -> "ArchivedPartition":
        return replace(self, offsets=OffsetRange(start=self.offsets.start, end=end))


def _common(one: OffsetRange, other: OffsetRange) -> OffsetRange:
    return OffsetRange(start=max(one.start, other.start), end=min(one.end, other.end))


def _without(gap: OffsetRange, offsets: OffsetRange) -> list[OffsetRange]:
    """What is left of a gap on both sides of `offsets`."""
    before = OffsetRange(start=gap.start, end=min(gap.end, offsets.start))
    after = OffsetRange(start=max(gap.start, offsets.end), end=gap.end)
    return [rest for rest in (before, after) if rest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`config` is what the topic set for itself when it was last archived."""

    topic: str
    topic_id: str
    config: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[int, ArchivedPartition] = field(default_factory=dict)
    revision: int = 0

    def with_partition(self, number: int, partition: ArchivedPartition) -> "Manifest":
        return replace(self, partitions={**self.partitions, number: partition})

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions.values())


def manifest_to_json(manifest: Manifest) -> bytes:
    document = {
        "format": FORMAT,
        "revision": manifest.revision,
        "topic": manifest.topic,
        "topic_id": manifest.topic_id,
        "config": dict(sorted(manifest.config.items())),
        "partitions": [
            _partition_to_json(number, partition)
            for number, partition in sorted(manifest.partitions.items())
        ],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _partition_to_json(number: int, partition: ArchivedPartition) -> dict[str, Any]:
    return {
        "partition": number,
        "start": partition.offsets.start,
        "end": partition.offsets.end,
        "gaps": [{"start": gap.start, "end": gap.end} for gap in partition.gaps],
        "files": [_file_to_json(file) for file in partition.files],
    }


def _file_to_json(file: ArchivedFile) -> dict[str, Any]:
    return {
        "start": file.offsets.start,
        "end": file.offsets.end,
        "records": file.records,
        "bytes": file.size_bytes,
        "sha256": file.sha256,
        "time_min_ms": file.time_min_ms,
        "time_max_ms": file.time_max_ms,
    }


def manifest_from_json(content: bytes, *, place: str) -> Manifest:
    try:
        document = json.loads(content)
        if document["format"] > FORMAT:
            raise NewerArchive(place=place, format=document["format"])
        return Manifest(
            topic=str(document["topic"]),
            topic_id=str(document["topic_id"]),
            config=dict(document["config"]),
            partitions={
                int(one["partition"]): _partition_from_json(one) for one in document["partitions"]
            },
            revision=int(document["revision"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DamagedManifest(place=place, problem=problem) from None


def _partition_from_json(document: Mapping[str, Any]) -> ArchivedPartition:
    partition = ArchivedPartition(
        offsets=_range_from_json(document),
        files=tuple(_file_from_json(one) for one in document["files"]),
        gaps=tuple(_range_from_json(one) for one in document["gaps"]),
    )
    _check_order(partition)
    return partition


def _check_order(partition: ArchivedPartition) -> None:
    """Ranges that overlap would give a reader records twice."""
    at = partition.offsets.start
    ranges = [file.offsets for file in partition.files] + list(partition.gaps)
    for one in sorted(ranges, key=lambda one: one.start):
        if one.start < at or one.end > partition.offsets.end:
            raise ValueError(f"{one} overlaps, or is outside {partition.offsets}")
        at = one.end


def _range_from_json(document: Mapping[str, Any]) -> OffsetRange:
    return OffsetRange(start=int(document["start"]), end=int(document["end"]))


def _file_from_json(document: Mapping[str, Any]) -> ArchivedFile:
    return ArchivedFile(
        offsets=_range_from_json(document),
        records=int(document["records"]),
        size_bytes=int(document["bytes"]),
        sha256=str(document["sha256"]),
        time_min_ms=document["time_min_ms"],
        time_max_ms=document["time_max_ms"],
    )
