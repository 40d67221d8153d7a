"""What retention has deleted from a topic, read from its archive as if it were still there.

An archive (`millstream.archive`) keeps records with their offsets. Where it reaches up to the log's
first record without a hole, a read may begin in it: the range of a partition is then that of both.
Asks no broker; the records look like those of a consumer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE as NO_TIME

from millstream.archive.manifest import ArchivedPartition, Manifest
from millstream.archive.parquet import Columns, columns_from
from millstream.archive.reading import read_partition
from millstream.archive.selection import Selection
from millstream.archive.stores import Store, open_store
from millstream.archive.topic_archive import load_manifest
from millstream.base.errors import Rejected
from millstream.base.librdkafka import topic_id_text
from millstream.base.offsets import OffsetRange
from millstream.processing.reading.offset_plan import (
    Available,
    AvailableTopic,
    DataLost,
    Partition,
)

TIME_KINDS = {"CreateTime": TIMESTAMP_CREATE_TIME, "LogAppendTime": TIMESTAMP_LOG_APPEND_TIME}


class HoleInArchive(Rejected):
    """Between what is archived and what the topic still has, records are missing."""

    def __init__(self, *, place: str, holes: Mapping[str, str]) -> None:
        named = "; ".join(f"{part}: {why}" for part, why in sorted(holes.items()))
        super().__init__(
            f"The archive at {place} does not lead up to what its topic still has: {named}. To "
            "begin where nothing is missing any more, set on_loss to skip"
        )
        self.place, self.holes = place, holes


class Archive:
    """The archive of the topics of one read. What it holds is looked up when a log's start moves:
    what is behind it can only then be of use."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._reached: dict[tuple[str, str], tuple[Mapping[int, int], Mapping[int, int]]] = {}

    def reach(self, available: Available) -> Available:
        """The topics with all that can be read of them, archived or not."""
        return {topic: self._topic(topic, there) for topic, there in available.items()}

    def _topic(self, topic: str, there: AvailableTopic) -> AvailableTopic:
        starts = {number: within.start for number, within in there.partitions.items()}
        if not any(starts.values()):
            return there
        known = self._reached.get((topic, there.topic_id))
        if known is None or known[0] != starts:
            known = starts, self._starts(topic, there)
            self._reached[topic, there.topic_id] = known
        partitions = {
            number: OffsetRange(start=known[1][number], end=within.end)
            for number, within in there.partitions.items()
        }
        return replace(there, partitions=partitions)

    def _starts(self, topic: str, there: AvailableTopic) -> dict[int, int]:
        archived = _archived(self.place, topic, there.topic_id)
        return {
            number: first_before(archived.get(number), within.start)
            for number, within in there.partitions.items()
        }

    def require_no_holes(self, available: Available) -> None:
        """`available`: as the broker shows it. Who begins at the start expects all of it."""
        holes = {
            str(Partition(topic, number)): why
            for topic, there in available.items()
            for number, within in there.partitions.items()
            if within.start
            and (why := hole_in(self._partition(topic, there, number), within.start))
        }
        if holes:
            raise HoleInArchive(place=self.place, holes=holes)

    def _partition(
        self, topic: str, there: AvailableTopic, number: int
    ) -> ArchivedPartition | None:
        return _archived(self.place, topic, there.topic_id).get(number)

    def first_at(self, part: Partition, within: OffsetRange, time_ms: int) -> int | None:
        """The first archived offset within the range whose record is of this time, or later."""
        selection = Selection(start=within.start, end=within.end, since_ms=time_ms)
        for batch in _batches(self.place, part, selection):
            return int(batch.column("offset")[0].as_py())
        return None

    def records(self, part: Partition, within: OffsetRange) -> Iterator[list[Message]]:
        """All records of the range, which must lie in the archive as a whole."""
        store, manifest = _opened(self.place, part.topic)
        archived = None if manifest is None else manifest.partitions.get(part.number)
        if first_before(archived, within.end) > within.start:
            why = f"offsets {within} were deleted by retention, and are not in {self.place}"
            raise DataLost(losses={str(part): why})
        assert manifest is not None
        selection = Selection(start=within.start, end=within.end)
        for batch in read_partition(store, manifest, part.number, selection):
            yield _messages(part, columns_from(batch))


@lru_cache(maxsize=64)
def archive_at(place: str) -> Archive:
    """One for all reads of it, so that a worker looks up its manifest once."""
    return Archive(place)


def first_before(archived: ArchivedPartition | None, log_start: int) -> int:
    """Where a partition can be read from, without a hole up to what the log has."""
    if archived is None or archived.offsets.end < log_start:
        return log_start
    behind = [gap.end for gap in archived.gaps if gap.start < log_start]
    return min(log_start, max([archived.offsets.start, *behind]))


def hole_in(archived: ArchivedPartition | None, log_start: int) -> str:
    if archived is None:
        return f"it is not archived, and the topic begins at offset {log_start}"
    if archived.offsets.end < log_start:
        hole = OffsetRange(start=archived.offsets.end, end=log_start)
        return f"offsets {hole} are in neither"
    gaps = [gap for gap in archived.gaps if gap.start < log_start]
    return f"offsets {gaps[-1]} were deleted before they were archived" if gaps else ""


def _archived(place: str, topic: str, topic_id: str) -> Mapping[int, ArchivedPartition]:
    """What there is of this topic, and not of another one of its name."""
    _, manifest = _opened(place, topic)
    same = manifest is not None and manifest.topic_id == topic_id_text(topic_id)
    return manifest.partitions if manifest is not None and same else {}


def _opened(place: str, topic: str) -> tuple[Store, Manifest | None]:
    store = open_store(place)
    return store, load_manifest(store, topic)


def _batches(place: str, part: Partition, selection: Selection) -> Iterator[pa.RecordBatch]:
    store, manifest = _opened(place, part.topic)
    if manifest is not None:
        yield from read_partition(store, manifest, part.number, selection)


def _messages(part: Partition, columns: Columns) -> list[Message]:
    return [
        Message(
            topic=part.topic,
            partition=part.number,
            offset=offset,
            key=key,
            value=value,
            headers=list(headers) or None,
            timestamp=(NO_TIME, 0) if time_ms is None else (TIME_KINDS[str(kind)], time_ms),
        )
        for offset, time_ms, kind, key, value, headers in zip(
            columns.offsets,
            columns.times_ms,
            columns.timestamp_types,
            columns.keys,
            columns.values,
            columns.headers,
            strict=True,
        )
    ]
