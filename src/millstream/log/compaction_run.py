"""One cleaning of a log: reads closed segments, writes `.cleaned` ones beside them.

    first pass    the dirty segments: where was each key written last, as far as memory allows
    second pass   all segments up to there: what is left of neighbours becomes one segment

It changes no file that is in use. What it yields is complete on disk, and counts once the log's
owner has swapped it in (compaction_swap.py), in the order given: a tombstone goes only with or
after the values that it hides. Runs in a process of its own (broker/compactor_process.py); knows no
threads and asks no clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from millstream.base.disk import Bytes, Disk, DiskFile
from millstream.base.errors import Corrupt
from millstream.log.batch_walk import WALK_CHUNK_BYTES, BrokenAt, Walk
from millstream.log.checked_files import CHECKED_SUFFIX, checked_copy
from millstream.log.compaction import NO_DATA, SegmentFacts, has_room_for
from millstream.log.compaction_filter import (
    LatestOffsets,
    Payload,
    empty_batch,
    horizon_of,
    keep_all,
    keep_offsets,
    read_payload,
    rewrite_batch,
)
from millstream.log.compaction_job import CompactionJob
from millstream.log.compaction_swap import CLEANED, cleaned_path, discard
from millstream.log.compaction_transactions import TransactionTracker
from millstream.log.indexes import OffsetIndex, TimeIndex
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.record_batch import (
    NO_PRODUCER_ID,
    SPAN_BYTES,
    BatchHeader,
    CorruptBatch,
    read_marker,
)
from millstream.log.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_name,
)
from millstream.log.transaction_index import (
    TXN_INDEX_SUFFIX,
    AbortedTransaction,
    to_bytes,
)

# What is written is gathered to this size, and synced this often: a disk that gets a gigabyte at
# once makes everybody else's syncs wait for it.
WRITE_BYTES = 1 << 20
SYNC_BYTES = 8 << 20


class Uncleanable(Corrupt):
    """A segment that is not as it should be; the log stays as it is."""

    def __init__(self, *, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path}: cannot be compacted, byte {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


class CleanedSegment(NamedTuple):
    """A segment in `.cleaned` files that can replace those with offsets [base, end)."""

    base_offset: int
    end_offset: int
    bytes_before: int
    bytes_after: int


@dataclass(slots=True)
class CompactionCounts:
    """What a cleaning has done so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    batches_read: int = 0
    batches_kept: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class CompactionDone:
    """The end of a cleaning: everything below `cleaned_offset` is clean, if all was swapped in."""

    cleaned_offset: int
    counts: CompactionCounts


def never_wait(bytes_count: int) -> None:
    pass


@dataclass(slots=True)
class CompactionRun:
    """A cleaning under way. `pace` is told of bytes read and written, and may wait."""

    disk: Disk
    job: CompactionJob
    pace: Callable[[int], None] = never_wait
    counts: CompactionCounts = field(default_factory=CompactionCounts)
    # Of producers without data: their last marker in the dirty segments.
    last_markers: dict[int, int] = field(default_factory=dict)

    def run(self) -> Iterator[CleanedSegment | CompactionDone]:
        """Each cleaned segment as soon as it is complete on disk, and then the end."""
        latest = self._latest_offsets()
        segments = [one for one in self.job.segments if one.base_offset < latest.end_offset]
        for cleaned in self._clean(segments, latest):
            if cleaned is not None:
                yield cleaned
        yield CompactionDone(latest.end_offset, self.counts)

    # --- the first pass -----------------------------------------------------------------------

    def _latest_offsets(self) -> LatestOffsets:
        first_dirty = self.job.first_dirty_offset
        latest = LatestOffsets(first_dirty, keys_max=self.job.keys_max)
        transactions = TransactionTracker(
            one for one in self.job.aborted if one.last_offset >= first_dirty
        )
        for segment in self.job.segments:
            if segment.end_offset <= first_dirty:
                continue
            for header, data, at in self._source(segment).batches():
                if header.last_offset < first_dirty:
                    continue
                if header.is_control or transactions.is_aborted(header):
                    latest.pass_over(header)
                elif latest.has_room_for(header):
                    latest.note(header, data, at)
                else:
                    return self._ready(latest)
                if header.is_control:
                    transactions.is_spent(header, read_marker(memoryview(data)[at:]))
                    self._note_marker(header)
        return self._ready(latest)

    def _note_marker(self, header: BatchHeader) -> None:
        last = self.job.last_of_producers.get(header.producer_id)
        if last == (NO_DATA, header.producer_epoch):
            self.last_markers[header.producer_id] = header.last_offset

    def _ready(self, latest: LatestOffsets) -> LatestOffsets:
        latest.freeze()
        self.counts.keys = len(latest.latest)
        return latest

    def _source(self, segment: SegmentFacts) -> "SegmentSource":
        path = self.job.directory / (segment_name(segment.base_offset) + LOG_SUFFIX)
        return SegmentSource(
            self.disk.open_existing(path), segment, LeaderEpochs(list(self.job.epochs)), self.pace
        )

    # --- the second pass ----------------------------------------------------------------------

    def _clean(
        self, segments: Sequence[SegmentFacts], latest: LatestOffsets
    ) -> Iterator[CleanedSegment | None]:
        """Clean one after the other; what is left of neighbours becomes one, if it fits."""
        transactions = TransactionTracker(self.job.aborted)
        sieve = Sieve(self.job, latest, transactions, self.last_markers)
        target: SegmentTarget | None = None
        try:
            for segment in segments:
                if target is not None and not target.has_room_for(segment):
                    yield self._finish(target, transactions)
                    target = None
                source = self._source(segment)
                if target is None:
                    target = SegmentTarget(self.disk, self.job, source, pace=self.pace)
                else:
                    target.join(segment)
                self._clean_into(target, source, sieve)
            if target is not None:
                yield self._finish(target, transactions)
                target = None
        finally:
            if target is not None:
                target.close()

    def _finish(
        self, target: "SegmentTarget", transactions: TransactionTracker
    ) -> CleanedSegment | None:
        """The cleaned segment, complete on disk; None if it would be the same as before."""
        aborted, transactions.still_aborted = transactions.still_aborted, []
        if not target.has_begun:
            return None
        target.finish(aborted)
        self.counts.bytes_written += target.size_bytes
        return CleanedSegment(
            target.base_offset, target.end_offset, target.source_bytes, target.size_bytes
        )

    def _clean_into(self, target: "SegmentTarget", source: "SegmentSource", sieve: "Sieve") -> None:
        counts = self.counts
        for header, data, at in source.batches():
            counts.bytes_read += header.size_bytes
            counts.batches_read += 1
            counts.records_read += header.record_count
            try:
                left = sieve.sift(header, data, at)
            except CorruptBatch as error:
                raise source.uncleanable(header.base_offset, error) from error
            if left is None:
                target.drop(header)
                continue
            if left is UNCHANGED:
                target.copy(header, data, at)
                counts.records_kept += header.record_count
            else:
                target.write(*left)
                counts.records_kept += left[0].record_count
            counts.batches_kept += 1


Left = tuple[BatchHeader, bytes]
UNCHANGED: Left = (BatchHeader._make([0] * len(BatchHeader._fields)), b"")


@dataclass(frozen=True, slots=True)
class Sieve:
    """Decides what is left of each batch."""

    job: CompactionJob
    latest: LatestOffsets
    transactions: TransactionTracker
    last_markers: Mapping[int, int]

    def sift(self, header: BatchHeader, data: bytes, at: int) -> Left | None:
        """What is left of a batch: UNCHANGED, a smaller one, or None if nothing is."""
        if header.is_control:
            left = self._sift_marker(header, data, at)
        elif self.transactions.is_aborted(header):
            left = None
        elif header.base_offset >= self.latest.end_offset:
            left = UNCHANGED
        elif header.record_count == 0:
            left = None
        else:
            left = self._sift_records(header, data, at)
        if left is not None or not self._must_stay(header):
            return left
        return UNCHANGED if header.record_count == 0 else empty_batch(header)

    def _must_stay(self, header: BatchHeader) -> bool:
        """Even an empty batch stays if it is the last of its producer: it has the sequence.

        Without data it is the last marker, which has the epoch.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return False
        last = self.job.last_of_producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset == NO_DATA:
            is_of_epoch = header.is_control and header.producer_epoch == last.epoch
            return is_of_epoch and header.last_offset >= self.last_markers.get(
                header.producer_id, header.last_offset
            )
        return header.last_offset == last.offset

    def _sift_marker(self, header: BatchHeader, data: bytes, at: int) -> Left | None:
        """A spent marker gets a horizon first, and goes once that has passed."""
        batch = memoryview(data)[at : at + header.size_bytes]
        if not self.transactions.is_spent(header, read_marker(batch)):
            return UNCHANGED
        horizon_ms = horizon_of(header)
        if header.record_count == 0 or (horizon_ms is not None and horizon_ms <= self.job.now_ms):
            return None
        if horizon_ms is not None:
            return UNCHANGED
        payload = read_payload(header, data, at)
        return rewrite_batch(
            header, payload, keep_all(header, payload), horizon_ms=self._new_horizon_ms
        )

    def _sift_records(self, header: BatchHeader, data: bytes, at: int) -> Left | None:
        payload: Payload | None = None
        if header.last_offset >= self.latest.start_offset:
            offsets = self.latest.latest_in(header)
            has_tombstones = self.latest.has_tombstones(header)
        else:
            payload = read_payload(header, data, at)
            offsets, has_tombstones = self.latest.others_in(header, payload)
        if not offsets:
            return None
        if len(offsets) == header.record_count and not has_tombstones:
            return UNCHANGED
        horizon_ms = horizon_of(header)
        payload = payload or read_payload(header, data, at)
        kept = keep_offsets(
            header,
            payload,
            frozenset(offsets),
            may_have_tombstones=has_tombstones,
            must_drop_tombstones=horizon_ms is not None and horizon_ms <= self.job.now_ms,
        )
        if kept.record_count == 0:
            return None
        new_horizon = self._new_horizon_ms if kept.has_tombstones and horizon_ms is None else None
        if kept.record_count == header.record_count and new_horizon is None:
            return UNCHANGED
        return rewrite_batch(header, payload, kept, horizon_ms=new_horizon)

    @property
    def _new_horizon_ms(self) -> int:
        return self.job.now_ms + self.job.delete_retention_ms


class SegmentSource:
    """A closed segment as it is read: batch by batch, each checked."""

    def __init__(
        self,
        file: DiskFile,
        facts: SegmentFacts,
        epochs: LeaderEpochs,
        pace: Callable[[int], None],
    ) -> None:
        self.file = file
        self.facts = facts
        self._epochs = epochs
        self._pace = pace
        self._chunk, self._chunk_at = b"", 0

    def batches(self) -> Iterator[tuple[BatchHeader, bytes, int]]:
        """Header of each batch, and where it is: in these bytes, at this position."""
        size = self.file.size
        walk = Walk(self._read, size, self.facts.end_offset, self._epochs, size, True)
        end_offset = self.facts.base_offset
        try:
            for position, header in walk.batches(0, self.facts.base_offset):
                end_offset = header.last_offset + 1
                yield header, self._chunk, position - self._chunk_at
        except BrokenAt as broken:
            raise Uncleanable(
                path=self.file.path, position=broken.position, reason=broken.error.reason
            ) from broken
        if end_offset != self.facts.end_offset:
            reason = f"its batches end at {end_offset}, {self.facts.end_offset} follows"
            raise Uncleanable(path=self.file.path, position=size, reason=reason)

    def _read(self, position: int, size: int) -> Bytes:
        """A chunk of the file, kept while its batches are looked at; or a few bytes beside it."""
        if size <= SPAN_BYTES:
            at = position - self._chunk_at
            if at + size <= len(self._chunk):
                return self._chunk[at : at + size]
            return self.file.read(position, size)
        self._chunk, self._chunk_at = bytes(self.file.read(position, size)), position
        self._pace(len(self._chunk))
        return self._chunk

    def uncleanable(self, offset: int, error: CorruptBatch) -> Uncleanable:
        reason = f"the batch with offset {offset}: {error.reason}"
        return Uncleanable(path=self.file.path, position=self._chunk_at, reason=reason)


class SegmentTarget:
    """The segment that some sources become. Until something changes, nothing is written.

    Its last batch ends where the last source ended, if need be an empty one: so everybody who
    reads the file knows which offsets it stands for.
    """

    def __init__(
        self,
        disk: Disk,
        job: CompactionJob,
        source: SegmentSource,
        *,
        pace: Callable[[int], None],
    ) -> None:
        self._disk = disk
        self._job = job
        self._source = source
        self._pace = pace
        self.base_offset = source.facts.base_offset
        self.end_offset = source.facts.end_offset
        self.source_bytes = source.facts.size_bytes
        self._index_bytes = source.facts.index_bytes
        self.size_bytes = 0
        self._segment: Segment | None = None
        self._unchanged: list[BatchHeader] = []
        self._pending: list[Bytes] = []
        self._pending_bytes = self._unsynced_bytes = 0
        # The batch of which nothing was left, if it is the last one so far.
        self._dropped: BatchHeader | None = None

    @property
    def has_begun(self) -> bool:
        return self._segment is not None

    def has_room_for(self, segment: SegmentFacts) -> bool:
        return has_room_for(
            segment,
            base_offset=self.base_offset,
            size_bytes=self.size_bytes,
            index_bytes=self._index_bytes,
            limits=self._job,
        )

    def join(self, segment: SegmentFacts) -> None:
        """What is left of this one comes behind what there is."""
        self.begin()
        self.end_offset = segment.end_offset
        self.source_bytes += segment.size_bytes
        self._index_bytes = (
            max(self._opened.offsets.size_bytes, self._opened.times.size_bytes)
            + segment.index_bytes
        )

    def begin(self) -> None:
        """Make the files; what was copied so far is the beginning of the source."""
        if self._segment is not None:
            return
        self._segment = self._open()
        position = 0
        for header in self._unchanged:
            self._segment.note(position, header)
            position += header.size_bytes
        for at in range(0, self.size_bytes, WALK_CHUNK_BYTES):
            size = min(WALK_CHUNK_BYTES, self.size_bytes - at)
            self._add(self._source.file.read(at, size))
        self._unchanged.clear()

    @property
    def _opened(self) -> Segment:
        assert self._segment is not None, "begin first"
        return self._segment

    def _open(self) -> Segment:
        discard(self._disk, self._job.directory, self.base_offset, CLEANED)
        log, offsets, times = (
            self._disk.open(cleaned_path(self._job.directory, self.base_offset, suffix))
            for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        return Segment(
            base_offset=self.base_offset,
            end_offset=self.base_offset,
            log=log,
            offsets=OffsetIndex(offsets, self.base_offset, is_growing=True),
            times=TimeIndex(times, self.base_offset, is_growing=True),
            epochs=LeaderEpochs(),
            created_ms=self._job.now_ms,
            index_interval_bytes=self._job.index_interval_bytes,
        )

    def copy(self, header: BatchHeader, data: bytes, at: int) -> None:
        """A batch that stays as it is."""
        if self._dropped is not None:
            self.begin()
            self._dropped = None
        if self._segment is None:
            self._unchanged.append(header)
            self.size_bytes += header.size_bytes
        else:
            self._note(header)
            self._add(memoryview(data)[at : at + header.size_bytes])

    def write(self, header: BatchHeader, batch: bytes) -> None:
        """A batch that has lost something."""
        self.begin()
        self._dropped = None
        self._note(header)
        self._add(batch)

    def drop(self, header: BatchHeader) -> None:
        """A batch of which nothing is left. An empty one at the end may be there again."""
        if header.record_count or self._dropped is not None:
            self.begin()
        self._dropped = header

    def _note(self, header: BatchHeader) -> None:
        self._opened.note(self.size_bytes, header)
        self.size_bytes += header.size_bytes

    def _add(self, chunk: Bytes) -> None:
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        if self._pending_bytes >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._opened.log.append(self._pending)
            self._pace(self._pending_bytes)
            self._unsynced_bytes += self._pending_bytes
            self._pending, self._pending_bytes = [], 0
        if self._unsynced_bytes >= SYNC_BYTES:
            self._opened.log.sync()
            self._unsynced_bytes = 0

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Make everything durable, names included."""
        if self._dropped is not None:
            self.write(*empty_batch(self._dropped))
        self._flush()
        self._opened.log.sync()
        self._opened.save_indexes()
        self._opened.close()
        self._save_aborted(aborted)
        self._disk.sync_directory(self._job.directory)

    def _save_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Of an empty list the checked copy alone, unless it must replace another one."""
        content = to_bytes(aborted)
        replaced = self._job.directory / (segment_name(self.base_offset) + TXN_INDEX_SUFFIX)
        if content or self._disk.exists(replaced):
            self._save(TXN_INDEX_SUFFIX, content)
        self._save(TXN_INDEX_SUFFIX + CHECKED_SUFFIX, checked_copy(content))

    def _save(self, suffix: str, content: bytes) -> None:
        file = self._disk.open(cleaned_path(self._job.directory, self.base_offset, suffix))
        file.overwrite(content)
        file.sync()
        file.close()

    def close(self) -> None:
        if self._segment is not None:
            self._segment.close()
