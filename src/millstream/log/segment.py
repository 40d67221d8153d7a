"""One segment: consecutive batches in a file, with its two indexes.

Only the last segment of a partition grows. Two invariants make recovery simple: a segment is
synced, indexes included, before its successor is created, so only the last one can be torn; and
what another process may have touched since we wrote it is checked again when it is read.
It does not know about producers, retention or who reads.

The loop that owns a segment appends to it; other threads may read it at the same time, without
locks. What they read is complete before it is shown: `visible_bytes` only grows, an index entry
is whole once its table counts it, and a file that is read stays open until the last reader lets
go of it.
"""

import dataclasses
import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from millstream.base.disk import Bytes, Disk, DiskFile
from millstream.base.errors import Corrupt
from millstream.log.batch_walk import WALK_CHUNK_BYTES, BrokenAt, ReadBytes, Walk
from millstream.log.indexes import OffsetIndex, OffsetMark, TimeIndex, TimeMark
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.record_batch import (
    BATCH_LENGTH_MIN,
    CHECKED_FROM,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    SPAN,
    SPAN_BYTES,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from millstream.log.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

# How much is read at once to find a batch near its index entry.
FIND_CHUNK_BYTES = 64 << 10
# How many readers' positions a segment remembers.
HINTS_MAX = 64
LENGTH = struct.Struct(">i")
# The front of a batch's header, up to last_offset_delta (record_batch.py).
FRONT = struct.Struct(">qiibIhi")
LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
NOTHING = memoryview(b"")
NO_MARK = TimeMark(NO_TIMESTAMP, -1)


class DamagedSegment(Corrupt):
    """Bytes of a segment changed after they were written. They are never served."""

    def __init__(
        self, *, path: Path, position: int, reason: str, resume_offset: int, resume_position: int
    ) -> None:
        super().__init__(
            f"{path}: damaged at byte {position} ({reason}); the records there are not served, "
            f"reading can go on at offset {resume_offset}; restore the file from a copy, and "
            "check the disk"
        )
        self.path, self.position, self.reason = path, position, reason
        self.resume_offset, self.resume_position = resume_offset, resume_position


class ReadWouldBlock(Exception):
    """The bytes are not in memory: read again, in a thread that may wait for the device."""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


@dataclass(slots=True, eq=False)
class Segment:
    """Batches with offsets [base_offset, end_offset). Owned by one PartitionLog."""

    base_offset: int
    end_offset: int
    log: DiskFile
    offsets: OffsetIndex
    times: TimeIndex
    epochs: LeaderEpochs
    created_ms: int
    index_interval_bytes: int
    # The largest timestamp so far and the last offset of the batch that brought it.
    largest: TimeMark = NO_MARK
    # What readers may see: bytes below this position, and the largest timestamp in them.
    visible_bytes: int = 0
    visible_largest: TimeMark = NO_MARK
    # Bytes below this position are verified whenever they are read.
    check_below: int = 0
    # No append comes any more.
    is_closed: bool = False
    # The indexes in memory are better than those on disk.
    must_save_indexes: bool = False
    # The transactions whose abort marker is in this segment, in its order.
    aborted: list[AbortedTransaction] = field(default_factory=list)
    _bytes_since_entry: int = 0
    _last_position: int = -1
    # Where the batch with this offset starts: a reader mostly goes on where it stopped.
    _hints: dict[int, int] = field(default_factory=dict)
    _damages: dict[int, DamagedSegment] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return self.log.size

    @property
    def is_empty_on_disk(self) -> bool:
        return not any(file.size for file in self._files)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; without any, when the segment was started."""
        return self.largest.timestamp if self.largest.timestamp >= 0 else self.created_ms

    # --- grow and close -----------------------------------------------------------------------

    def append(self, batch: Bytes, header: BatchHeader) -> None:
        position = self.log.size
        self.log.append((batch,))
        self.note(position, header)

    def note(self, position: int, header: BatchHeader) -> None:
        """Take the batch at `position`, which is in the file already, into the indexes."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.largest.timestamp and header.record_count:
            self.largest = TimeMark(header.max_timestamp, last_offset)
        if self._bytes_since_entry > self.index_interval_bytes:
            self.offsets.add(OffsetMark(last_offset, position))
            self.times.add(self.largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.batch_length + SPAN_BYTES
        self._last_position = position
        self.end_offset = last_offset + 1

    def note_last(self, position: int, header: BatchHeader) -> None:
        """The segment was closed well, and this is its last batch; its index has all the others."""
        self.end_offset = header.last_offset + 1
        self._last_position = position
        self.largest = self.times.last

    def start_over(self) -> None:
        """Forget what the indexes say: the caller notes every batch again."""
        self.offsets.clear()
        self.times.clear()
        self.end_offset, self.largest = self.base_offset, NO_MARK
        self.check_below = self._bytes_since_entry = 0
        self._last_position = -1

    def show(self, end_position: int, largest: TimeMark) -> None:
        """Let readers see the bytes below `end_position`."""
        self.visible_largest = largest
        self.visible_bytes = end_position

    def show_all(self) -> None:
        self.show(self.log.size, self.largest)

    def save_indexes(self) -> None:
        """Make the indexes on disk complete: at a clean stop and before a successor exists.

        The last batch always has an entry: that tells how long the log file must be.
        """
        self._add_last_marks()
        self.offsets.save()
        self.times.save()
        self.must_save_indexes = False

    def _add_last_marks(self) -> None:
        last = self.offsets.last
        if self._last_position > (last.position if last else -1):
            self.offsets.add(OffsetMark(self.end_offset - 1, self._last_position))
        if self.largest.timestamp >= 0:
            self.times.add(self.largest)

    def seal(self) -> None:
        """No append comes any more. From now on every read is checked."""
        self.log.sync()
        self.save_indexes()
        self.offsets.freeze()
        self.times.freeze()
        self.check_below = self.log.size
        self.is_closed = True
        self.show_all()

    def seal_at(self, end_offset: int) -> None:
        """Close a segment whose records up to `end_offset` are lost."""
        self._add_last_marks()
        self.end_offset = end_offset
        self.mark_missing(end_offset - 1)
        self.seal()

    def keep_open(self) -> None:
        """Another segment is about to get its names."""
        for file in self._files:
            file.keep_open()

    def retire(self) -> None:
        """Its files are about to go."""
        for file in self._files:
            file.retire()

    def close(self) -> None:
        for file in self._files:
            file.close()

    @property
    def _files(self) -> tuple[DiskFile, ...]:
        return self.log, self.offsets.file, self.times.file

    # --- read ---------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, must_not_block: bool = False) -> memoryview:
        """Whole visible batches from the one that holds `offset`, or the first behind it.

        At most `bytes_max`, but always one batch if there is one (KIP-74).
        """
        read = self._read_cached if must_not_block else self.log.read
        end = self.visible_bytes
        position, expected = self._hints.get(offset), offset
        if position is None:
            if must_not_block and self.offsets.is_on_disk and offset > self.base_offset:
                raise ReadWouldBlock  # the index may have to come from the device
            found = self._find(offset, read, end)
            if found is None:
                return NOTHING
            position, expected = found[0], found[1].base_offset
        size = min(max(bytes_max, HEADER_BYTES), end - position)
        if size <= 0:
            self._check_end(end)
            return NOTHING
        view = memoryview(read(position, size))
        length = self._whole_batches(view, position, expected, bytes_max, read, end)
        if length == 0:  # not even one: its own size, then
            size = self._first_size(view, position, expected, end)
            view = memoryview(read(position, size))
            if len(view) < size:
                self._confirm(position, expected, read, position + len(view))
            length = self._whole_batches(view, position, expected, size, read, end)
        return view[:length]

    def _read_cached(self, position: int, size: int) -> Bytes:
        data = self.log.read_cached(position, size)
        if data is None:
            raise ReadWouldBlock
        return data

    def _first_size(self, view: memoryview, position: int, expected: int, end: int) -> int:
        """How long the batch is that `view` holds the beginning of."""
        try:
            size_bytes = read_header(view).size_bytes
            if position + size_bytes > end:
                raise CorruptBatch(f"{size_bytes} bytes long, {end - position} are there")
        except CorruptBatch as error:
            raise self.damage(BrokenAt(position, expected, error)) from error
        return size_bytes

    def _whole_batches(
        self, view: memoryview, at: int, expected: int, size_max: int, read: ReadBytes, end: int
    ) -> int:
        """How many bytes of `view` (read from position `at`) are whole batches to be served.

        The hot loop of a fetch. It knows what an ordinary batch looks like, and asks `_confirm`
        about any other one.
        """
        position = last = 0
        epoch, epoch_end = -1, -1
        room = min(len(view), size_max)
        checked = self.check_below - at
        while position + HEADER_BYTES <= len(view):
            if position < checked:
                base, length, its_epoch, magic, crc, _, delta = FRONT.unpack_from(view, position)
                batch_end = position + SPAN_BYTES + length
                if batch_end > room and (position or batch_end > len(view)):
                    break
                if base >= epoch_end:
                    epoch, epoch_end = self.epochs.run_at(base)
                if (
                    (base != expected and not self._is_gap(view, expected, base + delta, batch_end))
                    or base < expected
                    or (its_epoch != epoch and epoch >= 0)
                    or magic != MAGIC
                    or length < BATCH_LENGTH_MIN
                    or crc32c(view[position + CHECKED_FROM : batch_end]) != crc
                ):
                    try:
                        self._confirm(at + position, expected, read, end)
                    except DamagedSegment:
                        if position:
                            break
                        raise
                expected = base + delta + 1
            else:
                (length,) = LENGTH.unpack_from(view, position + 8)
                batch_end = position + SPAN_BYTES + length
                if batch_end > room and (position or batch_end > len(view)):
                    break
                if length < BATCH_LENGTH_MIN:
                    self._confirm(at + position, expected, read, end)
            last, position = position, batch_end
        if position:
            base, _, _, _, _, _, delta = FRONT.unpack_from(view, last)
            self._hint(base + delta + 1, at + position)
        return position

    def _is_gap(self, view: memoryview, expected: int, last_offset: int, batch_end: int) -> bool:
        """Whether batches are missing before this one as compaction leaves it (batch_walk.py).

        If the next batch is not in view, `_confirm` looks for it.
        """
        if not self.is_closed or batch_end + SPAN_BYTES > len(view):
            return False
        next_offset: int = SPAN.unpack_from(view, batch_end)[0]
        return expected <= last_offset < next_offset

    def _confirm(self, position: int, expected: int, read: ReadBytes, end: int) -> None:
        """Raise DamagedSegment unless the batch at `position` is sound after all (a gap)."""
        try:
            next(self._walk(read, end).batches(position, expected))
        except BrokenAt as broken:
            raise self.damage(broken) from broken

    def _find(self, offset: int, read: ReadBytes, end: int) -> tuple[int, BatchHeader] | None:
        """The batch that holds `offset`, or the first one behind it; None if all are before."""
        walk = self._walk(read, end)
        position, expected = self._start_near(offset, read)
        while True:
            try:
                for at, header in walk.batches(position, expected):
                    if header.last_offset >= offset:
                        return at, header
                self._check_end(end)
                return None
            except BrokenAt as broken:
                damage = self.damage(broken)
                if damage.resume_offset > offset:
                    raise damage from broken
                position, expected = damage.resume_position, damage.resume_offset

    def _start_near(self, offset: int, read: ReadBytes) -> tuple[int, int]:
        """Where to start looking for `offset`: position and offset of a batch at or before it.

        An index is believed only if the batch is where it says. Any true entry at or before the
        offset is a good start, so one check is enough.
        """
        for _ in range(2):  # the second time with a rebuilt index
            mark = self._mark_before(offset)
            if mark is None:
                break
            header = self._marked(mark, read)
            if header is not None:
                return mark.position, header.base_offset
            self._distrust(self.offsets, f"no batch ends with {mark.offset} at its position")
        return 0, self.base_offset

    def _mark_before(self, offset: int) -> OffsetMark | None:
        if offset <= self.base_offset:
            return None
        mark = self.offsets.mark_for(offset)
        if mark is not None and mark.position >= self.log.size and mark == self.offsets.last:
            return self.offsets.mark_for(mark.offset - 1)  # what it marks is missing
        return mark

    def _marked(self, mark: OffsetMark, read: ReadBytes) -> BatchHeader | None:
        """The header of the batch that an index entry marks; None if it is not there."""
        try:
            header = read_header(read(mark.position, HEADER_BYTES))
        except CorruptBatch:
            return None
        return header if header.last_offset == mark.offset else None

    def _check_end(self, end: int) -> None:
        """A walk came to the end of the file: raise DamagedSegment if there was more once."""
        last = self.offsets.last if self.is_closed else None
        if last is not None and last.position >= end:
            error = CorruptBatch(f"the file ends here, offset {last.offset} is missing")
            raise self.damage(BrokenAt(end, last.offset, error))

    def _walk(self, read: ReadBytes, end: int, chunk_bytes: int = FIND_CHUNK_BYTES) -> Walk:
        return Walk(
            read, end, self.end_offset, self.epochs, self.check_below, self.is_closed, chunk_bytes
        )

    def _hint(self, offset: int, position: int) -> None:
        if len(self._hints) >= HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def batches_since(self, timestamp: int) -> Iterator[memoryview]:
        """The visible batches that can hold a record with this timestamp or a later one."""
        position, expected = self._start_before(timestamp)
        try:
            for at, header in self._walk(self.log.read, self.visible_bytes).batches(
                position, expected
            ):
                if header.max_timestamp >= timestamp:
                    yield memoryview(self.log.read(at, header.size_bytes))
        except BrokenAt as broken:
            raise self.damage(broken) from broken

    def _start_before(self, timestamp: int) -> tuple[int, int]:
        """Where to start looking for `timestamp`, as `_start_near` does for an offset."""
        mark = self.times.mark_for(timestamp)
        found = self._find_mark(mark) if mark else None
        if mark is not None and found is None:
            self._distrust(self.times, f"no batch brought timestamp {mark.timestamp}")
            mark = self.times.mark_for(timestamp)
            found = self._find_mark(mark) if mark else None
        return found or (0, self.base_offset)

    def _find_mark(self, mark: TimeMark) -> tuple[int, int] | None:
        """Position and offset of the batch that brought a timestamp, if it is as the mark says."""
        try:
            found = self._find(mark.offset, self.log.read, self.log.size)
        except DamagedSegment:
            return None
        if found is None:
            return None
        position, header = found
        # Kafka may name any record of the batch, we name the last.
        newest_ms = header.max_timestamp if header.record_count else NO_TIMESTAMP
        is_there = header.base_offset <= mark.offset or mark.timestamp == NO_TIMESTAMP
        is_it = is_there and newest_ms == mark.timestamp
        return (position, header.base_offset) if is_it else None

    def has_largest(self, mark: TimeMark) -> bool:
        """Whether the batch that the mark names is there, with its timestamp."""
        return self.size_bytes == 0 or self._find_mark(mark) is not None

    # --- damage -------------------------------------------------------------------------------

    @property
    def is_damaged(self) -> bool:
        """Whether broken bytes were found so far."""
        return bool(self._damages)

    def damage(self, broken: BrokenAt) -> DamagedSegment:
        """The error for broken bytes; reported, and the way around them searched, only once."""
        damage = self._damages.get(broken.position)
        if damage is None:
            walk = self._walk(self.log.read, self.log.size)
            position, offset = walk.resumption(broken, self._anchor_behind(broken.position))
            damage = self._damages[broken.position] = DamagedSegment(
                path=self.log.path,
                position=broken.position,
                reason=broken.error.reason,
                resume_offset=offset,
                resume_position=position,
            )
            logger.error("%s", damage)
        return damage

    def _anchor_behind(self, position: int) -> int:
        """The next position where a batch surely starts; else the end of the file."""
        for mark in self.offsets.marks_behind(position):
            if self._marked(mark, self.log.read) is not None:
                return mark.position
        return self.log.size

    def intact_batches(
        self, position: int = 0, expected: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position` on, leaping over damage."""
        if expected is None:
            expected = self.base_offset
        while position < self.log.size:
            try:
                walk = self._walk(self.log.read, self.log.size, WALK_CHUNK_BYTES)
                yield from walk.batches(position, expected)
                return
            except BrokenAt as broken:
                damage = self.damage(broken)
                position, expected = damage.resume_position, damage.resume_offset

    def batches_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Like `intact_batches`, from the one that holds `offset` or a little before."""
        return self.intact_batches(*self._start_near(offset, self.log.read))

    def confirm_indexes(self) -> None:
        """Of a closed segment: rebuild the indexes unless their last entries agree with the log.

        The largest timestamp is taken from there, and decides when the segment is deleted.
        """
        last = self.offsets.last
        self.largest = self.visible_largest = self.times.last
        if last is not None and self._marked(last, self.log.read) is None:
            self._distrust(self.offsets, f"no batch ends with {last.offset} at its position")
        if not self.has_largest(self.largest):
            self._distrust(self.times, f"no batch brought timestamp {self.largest.timestamp}")

    def _distrust(self, index: OffsetIndex | TimeIndex, reason: str) -> None:
        logger.error("%s: damaged (%s); rebuilt from the log", index.path, reason)
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Make both indexes anew, in memory; they are saved when the log is closed.

        May run in a thread that reads. The new ones replace the old ones at once; an entry that
        the owner adds to the old ones meanwhile is lost, which makes the index a bit sparser.
        """
        fresh = dataclasses.replace(
            self, offsets=self.offsets.emptied(), times=self.times.emptied()
        )
        fresh.start_over()
        for position, header in self.intact_batches():
            fresh.note(position, header)
        if self.is_closed:
            fresh._add_last_marks()
            last = self.offsets.last
            if last is not None and fresh.end_offset <= last.offset < self.end_offset:
                fresh.mark_missing(last.offset)
            self.largest = self.visible_largest = fresh.largest
            self._last_position = fresh._last_position
        self.offsets, self.times = fresh.offsets, fresh.times
        self.must_save_indexes = True

    def mark_missing(self, last_offset: int) -> None:
        """Note in the index that the file must have been longer once, up to `last_offset`."""
        self.offsets.add(OffsetMark(last_offset, self.log.size))


def open_segment(
    disk: Disk,
    directory: Path,
    base_offset: int,
    *,
    epochs: LeaderEpochs,
    index_interval_bytes: int,
    created_ms: int,
    is_active: bool,
) -> Segment:
    """Open the files of a segment, or create them. The caller scans and syncs."""
    path = directory / segment_name(base_offset)
    log = disk.open(path.with_suffix(LOG_SUFFIX))
    return Segment(
        base_offset=base_offset,
        end_offset=base_offset,
        log=log,
        offsets=OffsetIndex(
            disk.open(path.with_suffix(OFFSET_INDEX_SUFFIX)), base_offset, is_growing=is_active
        ),
        times=TimeIndex(
            disk.open(path.with_suffix(TIME_INDEX_SUFFIX)), base_offset, is_growing=is_active
        ),
        epochs=epochs,
        created_ms=created_ms,
        index_interval_bytes=index_interval_bytes,
        visible_bytes=log.size,
        check_below=log.size,
        is_closed=not is_active,
    )
