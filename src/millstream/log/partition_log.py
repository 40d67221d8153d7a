"""The log of one partition: append at the end, read from anywhere, delete at the front.

It owns the segments, the producers' state and the leader epochs of one directory. Records up to
the high watermark are visible; without `relaxed` settings those are the synced ones. It neither
runs threads nor waits: a caller takes a `SyncJob`, runs it wherever it likes, and hands it back.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millstream.base.disk import Disk, DiskFailed, DiskFile, DiskFull, FileGone
from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.offsets import OffsetRange
from millstream.log.compaction_filter import CHECKED_RATIO_MAX, RecordWithoutKey, check_keys
from millstream.log.compaction_swap import Swap
from millstream.log.config import LogConfig
from millstream.log.indexes import TimeMark
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.producer_state import EndedTransaction
from millstream.log.record_batch import (
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    DecompressedTooLarge,
    InvalidBatch,
    Marker,
    check_batch,
    check_produced_batch,
    decode_records,
    encode_marker,
    has_records,
    read_header,
    read_marker,
    recompress,
    write_append_time,
    write_offset,
)
from millstream.log.record_faults import Faults, find_faults, outside_of, without_key
from millstream.log.recovery import SegmentOpener, open_log, save_epochs
from millstream.log.retention import expired_count
from millstream.log.segment import SEGMENT_SUFFIXES, Segment, open_segment, segment_name
from millstream.log.snapshots import SNAPSHOT_SUFFIX, SnapshotFiles
from millstream.log.time_search import TimedOffset as TimedOffset
from millstream.log.time_search import first_at_or_after, newest, segment_number
from millstream.log.transaction_index import (
    TXN_INDEX_SUFFIXES,
    AbortedTransaction,
    aborted_from,
    save_aborted,
)

logger = logging.getLogger(__name__)

# Index entries hold offsets relative to the segment in 32 bits, of which Java uses 31.
RELATIVE_OFFSET_MAX = (1 << 31) - 1


class OffsetOutOfRange(Rejected):
    def __init__(self, *, partition: str, offset: int, available: OffsetRange) -> None:
        super().__init__(f"{partition}: offset {offset} is not in {available}")
        self.partition, self.offset, self.available = partition, offset, available


class BatchTooLarge(Rejected):
    def __init__(self, *, partition: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{partition}: a batch of {size_bytes} bytes is over max.message.bytes={limit_bytes}"
        )
        self.partition, self.size_bytes, self.limit_bytes = partition, size_bytes, limit_bytes


class TimestampOutOfRange(Rejected):
    def __init__(
        self, *, partition: str, timestamp_ms: int, now_ms: int, faults: Faults = ()
    ) -> None:
        super().__init__(
            f"{partition}: timestamp {timestamp_ms} is too far from the broker's time {now_ms} "
            "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
        )
        self.partition, self.timestamp_ms, self.now_ms = partition, timestamp_ms, now_ms
        self.faults = faults


class RecordsWithoutKey(InvalidBatch):
    """Nothing could ever replace them in a compacted topic."""

    def __init__(self, *, partition: str, faults: Faults) -> None:
        super().__init__(f"{partition} is compacted and takes no record without a key")
        self.partition, self.faults = partition, faults


class LogReadOnly(Retryable):
    """A sync failed once. What it lost is unknown, so nothing more is written to this log."""

    def __init__(self, *, partition: str, cause: MillstreamError) -> None:
        super().__init__(f"{partition}: read-only since a write could not be made durable: {cause}")
        self.partition, self.cause = partition, cause


class Appended(NamedTuple):
    """Where a batch stands: offsets [base_offset, end_offset). Durable once synced past the end."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    size_bytes: int
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Makes everything up to `end_offset` durable. `run` may block: call it in a thread."""

    segment: Segment
    file: DiskFile
    end_offset: int
    end_position: int
    largest: TimeMark

    def run(self) -> None:
        self.file.sync()


@dataclass(slots=True)
class SwapJob:
    """Puts a cleaned segment in the place of others. `run` may block: call it in a thread.

    After an error it can be run again.
    """

    swap: Swap
    opener: SegmentOpener
    segment: Segment | None = None

    def run(self) -> None:
        self.swap.run()
        self.segment = self.opener.open_swapped(self.swap.base_offset, self.swap.end_offset)


class PartitionLog:
    """Offsets [start_offset, end_offset), of which those below high_watermark are visible.

    One thread owns it; others may call `read`, nothing else, at any time. The segments are
    contiguous; only the last one grows. Their list is replaced, never changed, so that a reader
    keeps the one it started with.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        config: LogConfig,
        *,
        leader_epoch: int,
        now_ms: int,
        start_offset: int = 0,
        synced_offset: int = 0,
        was_closed_cleanly: bool = False,
        when_full: Callable[[], None] | None = None,
    ) -> None:
        self.name = directory.name
        self.directory = directory
        self.config = config
        self.failure: LogReadOnly | None = None
        self._disk = disk
        self._when_full = when_full
        self._sync_in_flight = False
        self._swap: SwapJob | None = None
        self._unsynced_messages = 0
        self.synced_at_ms = now_ms
        self._snapshots = SnapshotFiles(disk, directory)
        opened = open_log(
            disk,
            directory,
            self._snapshots,
            config=config,
            now_ms=now_ms,
            start_offset=start_offset,
            synced_offset=synced_offset,
            was_closed_cleanly=was_closed_cleanly,
        )
        self.producers = opened.producers
        self.epochs = opened.epochs
        # Epochs never go back, even if the directory's own count was lost.
        self.leader_epoch = max(leader_epoch, self.epochs.last)
        self._segments = opened.segments
        self._active.show_all()
        # Where the log ended when its files had all that a clean stop writes.
        self._saved_offset = self.end_offset if opened.is_saved else None
        self.start_offset = max(start_offset, self._segments[0].base_offset)
        self.synced_offset = self.high_watermark = self.end_offset
        # Below it every transaction has ended, visibly. Threads may read it, the owner sets it.
        self.last_stable_offset = self.high_watermark
        self._ended: list[EndedTransaction] = []  # their markers are not visible yet
        self._settle_transactions()

    # --- facts --------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self._segments[-1].end_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def is_damaged(self) -> bool:
        """Whether bytes were found that changed after they were written."""
        return any(segment.is_damaged for segment in self._segments)

    @property
    def available(self) -> OffsetRange:
        return OffsetRange(start=self.start_offset, end=self.high_watermark)

    @property
    def closed_segments(self) -> Sequence[Segment]:
        return self._segments[:-1]

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    # --- append -------------------------------------------------------------------------------

    def append(self, batch: memoryview, *, now_ms: int, in_transaction: bool = False) -> Appended:
        """Check one batch, give it its offset, and write it. `batch` is changed in place.

        A batch that its producer sent before is not written again: its first place is returned.
        With `in_transaction` the caller knows that the producer has one open, here too.
        """
        if self.failure is not None:
            raise self.failure
        self._check_size(batch)
        header = check_produced_batch(batch)
        if header.attributes & TRANSACTIONAL and not in_transaction:
            raise InvalidBatch("it is part of a transaction, and its request names none")
        if self.config.is_compacted:
            self._check_keys(batch, header)
        stored = self.producers.check(header)
        if stored is not None:
            return Appended(
                stored.base_offset, stored.last_offset + 1, NO_TIMESTAMP, 0, is_duplicate=True
            )
        if self.config.codec is not None and header.codec != self.config.codec:
            batch, header = self._in_own_codec(batch, header, self.config.codec)
        header = self._stamp(batch, header, now_ms)
        return self._append_checked(batch, header, now_ms)

    def _check_size(self, batch: memoryview) -> None:
        if len(batch) > self.config.message_bytes_max:
            raise BatchTooLarge(
                partition=self.name,
                size_bytes=len(batch),
                limit_bytes=self.config.message_bytes_max,
            )

    def _in_own_codec(
        self, batch: memoryview, header: BatchHeader, codec: int
    ) -> tuple[memoryview, BatchHeader]:
        """The batch in the codec of this log (`compression.type`), which may make it larger."""
        try:
            batch, header = recompress(
                batch,
                header,
                codec,
                level=self.config.codec_level,
                bytes_max=CHECKED_RATIO_MAX * self.config.message_bytes_max,
            )
        except DecompressedTooLarge as error:
            raise InvalidBatch(
                f"{error.reason}: a topic with its own compression.type takes "
                f"{CHECKED_RATIO_MAX} times max.message.bytes"
            ) from error
        self._check_size(batch)
        return batch, header

    def append_own(self, batch: memoryview, *, now_ms: int) -> Appended:
        """Write a batch that the broker itself has made: its producer gave it no sequence."""
        if self.failure is not None:
            raise self.failure
        return self._append_checked(batch, check_batch(batch), now_ms)

    def append_marker(
        self, marker: Marker, *, producer_id: int, producer_epoch: int, now_ms: int
    ) -> Appended:
        """End the producer's transaction in this log, if it has one here."""
        self.producers.check_epoch(producer_id, producer_epoch)
        batch = encode_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
        )
        return self.append_own(memoryview(batch), now_ms=now_ms)

    def _append_checked(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        try:
            return self._write(batch, header, now_ms)
        except DiskFull:
            if self._when_full is not None:
                self._when_full()
            raise

    def _write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        size_bytes = len(batch)
        if self._must_roll(size_bytes, header, now_ms):
            self.roll(now_ms=now_ms)
        active, epoch = self._segments[-1], self.leader_epoch
        base_offset = active.end_offset
        if self.epochs.last < epoch:
            self._begin_epoch(base_offset)
        header = write_offset(batch, header, base_offset=base_offset, leader_epoch=epoch)
        try:
            active.append(batch, header)
        except DiskFailed as error:
            self.fail(error)
            raise self._read_only(error) from error
        self._unsynced_messages += header.record_count
        self._note_producer(batch, header, now_ms)
        if not self.config.syncs_before_ack:
            active.show_all()
            self._advance(active.end_offset)
        append_time_ms = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        return Appended(
            base_offset, active.end_offset, append_time_ms, size_bytes, is_duplicate=False
        )

    def _note_producer(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        marker = read_marker(batch) if header.is_control else None
        if marker is None:
            self.producers.note(header, now_ms=now_ms)
            return
        ended = self.producers.note_marker(header, marker, now_ms=now_ms)
        if ended is not None:
            self._ended.append(ended)
            if not ended.is_commit:
                self._active.aborted.append(ended.aborted)

    def _advance(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self._ended or self.producers.has_open:
            self._settle_transactions()
        else:
            self.last_stable_offset = high_watermark

    def _settle_transactions(self) -> None:
        """A transaction has ended for readers once its marker is visible to them."""
        self._ended = [one for one in self._ended if one.last_offset >= self.high_watermark]
        unstable = [one.first_offset for one in self._ended]
        first_open = self.producers.first_open_offset
        if first_open is not None:
            unstable.append(first_open)
        stable = min([self.high_watermark, *unstable])
        self.last_stable_offset = max(stable, self.start_offset)

    def _begin_epoch(self, base_offset: int) -> None:
        """Make it known, durably, which epoch writes from here on: before its first record."""
        epochs = LeaderEpochs(list(self.epochs.entries))
        epochs.begin(self.leader_epoch, base_offset)
        with self._read_only_if_failed():
            save_epochs(self._disk, self.directory, epochs)
        self.epochs.entries[:] = epochs.entries

    def _check_keys(self, batch: memoryview, header: BatchHeader) -> None:
        try:
            check_keys(header, batch, message_bytes_max=self.config.message_bytes_max)
        except RecordWithoutKey as error:
            faults = find_faults(batch, without_key, bytes_max=self._judged_bytes_max)
            raise RecordsWithoutKey(partition=self.name, faults=faults) from error

    @property
    def _judged_bytes_max(self) -> int:
        return CHECKED_RATIO_MAX * self.config.message_bytes_max

    def _stamp(self, batch: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
        if self.config.is_log_append_time:
            return write_append_time(batch, header, now_ms=now_ms)
        if header.is_log_append_time:
            raise InvalidBatch("only the broker may stamp a batch with its append time")
        newest = header.max_timestamp
        if newest - now_ms > self.config.timestamp_after_max_ms:
            raise self._out_of_range(batch, newest, now_ms)
        if self.config.timestamp_before_max_ms < now_ms:
            # Only the records know the oldest timestamp; rare enough to decode them here.
            oldest = min(record.timestamp_ms for record in decode_records(batch))
            if now_ms - oldest > self.config.timestamp_before_max_ms:
                raise self._out_of_range(batch, oldest, now_ms)
        return header

    def _out_of_range(
        self, batch: memoryview, timestamp_ms: int, now_ms: int
    ) -> TimestampOutOfRange:
        config = self.config
        judge = outside_of(
            max(0, now_ms - config.timestamp_before_max_ms), now_ms + config.timestamp_after_max_ms
        )
        faults = find_faults(batch, judge, bytes_max=self._judged_bytes_max)
        return TimestampOutOfRange(
            partition=self.name, timestamp_ms=timestamp_ms, now_ms=now_ms, faults=faults
        )

    def _must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int) -> bool:
        active, config = self._segments[-1], self.config
        if active.is_closed:
            return True
        active_bytes = active.log.size
        if active_bytes == 0:
            return False
        last_offset = active.end_offset + header.last_offset_delta
        return (
            active_bytes + size_bytes > config.segment_bytes
            or now_ms - active.created_ms >= config.segment_ms
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or active.offsets.size_bytes >= config.segment_index_bytes
        )

    def roll(self, *, now_ms: int) -> None:
        """Close the last segment and start the next. After a failure it can be called again.

        An empty one stays: its successor would have the same name.
        """
        if self.end_offset == self._active.base_offset:
            return
        with self._read_only_if_failed():
            save_aborted(self._disk, self._active.log.path, self._active.aborted)
            if not self._active.is_closed:
                self._active.seal()
                self._note_synced(self.end_offset)
            self._snapshots.save(self.end_offset, self.producers)
            successor = open_segment(
                self._disk,
                self.directory,
                self.end_offset,
                epochs=self.epochs,
                index_interval_bytes=self.config.index_interval_bytes,
                created_ms=now_ms,
                is_active=True,
            )
            self._disk.sync_directory(self.directory)
            self._snapshots.drop_old()
        self._segments = [*self._segments, successor]

    # --- sync ---------------------------------------------------------------------------------

    def sync_job(self) -> SyncJob | None:
        """What there is to sync now; None if nothing, or if the last job is not back yet."""
        if self._sync_in_flight or self.failure is not None or not self.has_unsynced:
            return None
        self._sync_in_flight = True
        active = self._active
        return SyncJob(active, active.log, active.end_offset, active.size_bytes, active.largest)

    @property
    def has_unsynced(self) -> bool:
        return self.synced_offset < self.end_offset

    def is_sync_due(self, *, now_ms: int) -> bool:
        """Whether the flush settings ask for a sync now (always, if appends wait for it)."""
        return self.has_unsynced and (
            self._unsynced_messages >= self.config.flush_messages
            or not 0 <= now_ms - self.synced_at_ms < self.config.flush_ms  # clocks step back
        )

    def complete(self, job: SyncJob, *, now_ms: int) -> None:
        """The job ran: what it covered is durable, and visible from now on."""
        self._sync_in_flight = False
        self.synced_at_ms = now_ms
        if job.end_offset <= self.synced_offset:
            return  # a roll has synced it meanwhile
        self.synced_offset = job.end_offset
        self._unsynced_messages = self.end_offset - job.end_offset
        if job.end_offset > self.high_watermark:
            job.segment.show(job.end_position, job.largest)
            self._advance(job.end_offset)

    def sync(self, *, now_ms: int) -> None:
        """Make everything durable now, in this thread."""
        self._sync_in_flight = False
        job = self.sync_job()
        if job is not None:
            with self._read_only_if_failed():
                job.run()
            self.complete(job, now_ms=now_ms)

    def fail(self, error: MillstreamError) -> None:
        """Stop writing for good: a sync or a write failed, and a retry could hide a loss."""
        self._sync_in_flight = False
        if self.failure is None:
            self.failure = self._read_only(error)
            logger.error("%s", self.failure)

    def _read_only(self, error: MillstreamError) -> LogReadOnly:
        return LogReadOnly(partition=self.name, cause=error)

    @contextlib.contextmanager
    def _read_only_if_failed(self) -> Iterator[None]:
        try:
            yield
        except DiskFailed as error:
            self.fail(error)
            raise self._read_only(error) from error

    def _note_synced(self, end_offset: int) -> None:
        self.synced_offset = end_offset
        self._unsynced_messages = 0
        self._advance(end_offset)

    # --- read ---------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, must_not_block: bool = False) -> memoryview:
        """Whole visible batches from the one that holds `offset`; empty at the end of the log.

        With `must_not_block` it raises ReadWouldBlock rather than wait for the device.
        """
        return self._read_in(self._segments, offset, bytes_max, None, must_not_block)

    def read_stable(
        self, offset: int, *, bytes_max: int, end_offset: int, must_not_block: bool = False
    ) -> tuple[memoryview, list[AbortedTransaction]]:
        """The same before `end_offset`, a last stable offset, with the aborted transactions in it.

        Both come from the same segments, whatever is dropped or compacted meanwhile.
        """
        segments = self._segments
        span = self._read_in(segments, offset, bytes_max, end_offset, must_not_block)
        return span, _aborted_in(segments, offset, end_of_batches(span, offset))

    def _read_in(
        self,
        segments: Sequence[Segment],
        offset: int,
        bytes_max: int,
        end_offset: int | None,
        must_not_block: bool,
    ) -> memoryview:
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(partition=self.name, offset=offset, available=self.available)
        visible_end = self.high_watermark
        if offset >= visible_end or (end_offset is not None and offset >= end_offset):
            return memoryview(b"")
        empty = memoryview(b"")
        if offset < segments[0].base_offset:  # dropped just now
            raise OffsetOutOfRange(partition=self.name, offset=offset, available=self.available)
        for segment in segments[segment_number(segments, offset) :]:
            try:
                span = segment.read(offset, bytes_max=bytes_max, must_not_block=must_not_block)
            except FileGone as error:
                if offset >= self.start_offset:
                    raise
                raise OffsetOutOfRange(  # dropped meanwhile
                    partition=self.name, offset=offset, available=self.available
                ) from error
            if span and segment is not segments[-1] and not has_records(span):
                empty = span  # what compaction left; a client makes more of what comes behind it
                continue
            if span:
                is_cut = end_offset is not None and end_offset < visible_end
                return _before(end_offset, span) if is_cut else span
        return empty

    def aborted_in(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in the offsets [start, end)."""
        return _aborted_in(self._segments, start, end)

    def first_at_or_after(self, timestamp_ms: int) -> TimedOffset | None:
        """The first visible record that is at least as new as `timestamp_ms`."""
        return first_at_or_after(self._segments, timestamp_ms, start_offset=self.start_offset)

    def newest(self) -> TimedOffset | None:
        """The visible record with the largest timestamp (the first, if several have it)."""
        if self.start_offset >= self.high_watermark:
            return None
        return newest(self._segments, start_offset=self.start_offset)

    # --- delete at the front ------------------------------------------------------------------

    def advance_start(self, offset: int) -> None:
        """Hide records below `offset` and drop the segments that hold nothing else.

        The caller has made the new start durable first.
        """
        if not self.start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(partition=self.name, offset=offset, available=self.available)
        self.start_offset = offset
        self._settle_transactions()
        self._drop_hidden()

    def _drop_hidden(self) -> None:
        """Drop the segments below the start; one that is being swapped has to wait."""
        swapped_from = self._swap.swap.base_offset if self._swap else self.end_offset
        hidden_end = min(self.start_offset, swapped_from)
        count = sum(1 for s in self._segments[:-1] if s.end_offset <= hidden_end)
        self._drop_segments(count, must_keep_order=False)

    def apply_retention(self, *, now_ms: int) -> int:
        """Drop segments past retention, whole ones only; returns how many went."""
        if self.failure is not None or self._swap is not None:
            return 0
        # A full disk has no room for a new segment, but the old ones can still go.
        with contextlib.suppress(DiskFull):
            self.roll_if_old(now_ms=now_ms)
        # The last one stays: it may hold records that are not visible yet.
        expired = expired_count(self._segments, self.config, now_ms=now_ms)
        count = min(expired, len(self._segments) - 1)
        if count:
            self.start_offset = max(self.start_offset, self._segments[count].base_offset)
            self._settle_transactions()
            self._drop_segments(count, must_keep_order=True)
        return count

    def roll_if_old(self, *, now_ms: int) -> None:
        """Only what is in a closed segment can be deleted or compacted."""
        active = self._active
        if active.size_bytes and self._is_too_old(active, now_ms):
            self.roll(now_ms=now_ms)

    def _is_too_old(self, active: Segment, now_ms: int) -> bool:
        return (
            now_ms - active.created_ms >= self.config.segment_ms
            or expired_count([active], self.config, now_ms=now_ms) > 0
        )

    def _drop_segments(self, count: int, *, must_keep_order: bool) -> None:
        """Remove the first `count` segments, oldest first.

        With `must_keep_order` each is gone for good before the next one goes: a crash must not
        leave a gap in front of which records are visible.
        """
        dropped, self._segments = self._segments[:count], self._segments[count:]
        with self._read_only_if_failed():
            for segment in dropped:
                logger.info("%s: deleted, offsets %d to %d", segment.log.path, segment.base_offset,
                            segment.end_offset - 1)  # fmt: skip
                segment.retire()
                path = self.directory / segment_name(segment.base_offset)
                for suffix in (*SEGMENT_SUFFIXES, *TXN_INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
                    self._remove_if_there(path.with_suffix(suffix))
                if must_keep_order or segment is dropped[-1]:
                    self._disk.sync_directory(self.directory)

    def _remove_if_there(self, path: Path) -> None:
        if self._disk.exists(path):
            self._disk.remove(path)

    # --- compaction ---------------------------------------------------------------------------

    def begin_swap(self, base_offset: int, end_offset: int, *, now_ms: int) -> SwapJob | None:
        """The exchange of the segments with these offsets for a cleaned one.

        None if they are not there any more, or not all of them.
        """
        closed = self._segments[:-1]
        starts = {segment.base_offset for segment in closed}
        ends = {segment.end_offset for segment in closed}
        if self.failure is not None or base_offset not in starts or end_offset not in ends:
            return None
        assert self._swap is None, "one swap at a time"
        for segment in closed:
            if base_offset <= segment.base_offset < end_offset:
                segment.keep_open()
        opener = SegmentOpener(self._disk, self.directory, self.config, self.epochs, now_ms)
        swap = Swap(self._disk, self.directory, base_offset, end_offset)
        self._swap = SwapJob(swap, opener)
        return self._swap

    def complete_swap(self, job: SwapJob) -> None:
        """The job ran: from now on the cleaned segment is read. Readers of the others go on."""
        assert job.segment is not None, "run it first"
        swap = job.swap
        before = [one for one in self._segments if one.end_offset <= swap.base_offset]
        behind = [one for one in self._segments if one.base_offset >= swap.end_offset]
        self._segments = [*before, job.segment, *behind]
        self._swap = None
        self._drop_hidden()

    # --- close and delete ---------------------------------------------------------------------

    def retire(self) -> None:
        """Its files are about to go. They are not closed here: a thread may still read one."""
        for segment in self._segments:
            segment.retire()

    @property
    def is_saved(self) -> bool:
        """Whether a clean stop has nothing to write.

        All that it writes follows from the records, but for indexes that had to be rebuilt. What
        else changes without a record, files that go or come, is durable when it has happened; and
        producers that were forgotten are forgotten again after the next start.
        """
        return self._saved_offset == self.end_offset and not any(
            segment.must_save_indexes for segment in self._segments
        )

    def close(self, *, now_ms: int) -> bool:
        """Make everything durable and close the files; False if that is not possible any more."""
        is_clean = self.failure is None
        if is_clean and not self.is_saved:
            try:
                self._save(now_ms=now_ms)
            except MillstreamError as error:
                logger.error("%s: could not be closed cleanly: %s", self.directory, error)
                is_clean = False
        for segment in self._segments:
            segment.close()
        return is_clean

    def _save(self, *, now_ms: int) -> None:
        self.sync(now_ms=now_ms)
        save_aborted(self._disk, self._active.log.path, self._active.aborted)
        for segment in self._segments:
            if segment.must_save_indexes or not segment.is_closed:
                segment.save_indexes()
        # Last, since recovery reads the log from here on; it makes all names durable.
        self._snapshots.save(self.end_offset, self.producers)


def _before(end_offset: int | None, span: memoryview) -> memoryview:
    """The batches that start before `end_offset`."""
    position = 0
    while position < len(span):
        header = read_header(span, position)
        if end_offset is not None and header.base_offset >= end_offset:
            break
        position += header.size_bytes
    return span[:position]


def end_of_batches(span: memoryview, offset: int) -> int:
    """The offset after the last of these batches; `offset` if there is none."""
    position = 0
    while position < len(span):
        header = read_header(span, position)
        position, offset = position + header.size_bytes, header.last_offset + 1
    return offset


def _aborted_in(segments: Sequence[Segment], start: int, end: int) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for segment in segments[segment_number(segments, start) :]:
        for one in aborted_from(segment.aborted, start):
            if one.first_offset < end:
                found.append(one)
            if one.last_stable_offset >= end:
                return found  # whatever ended later has begun behind it
    return found
