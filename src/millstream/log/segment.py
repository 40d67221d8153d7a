"""One segment: consecutive batches in a file, with its two indexes.

Only the last segment of a partition grows. Two invariants make recovery simple: a segment is
synced, indexes included, before its successor is created, so only the last one can be torn; and
what another process may have touched since we wrote it is checked again when it is read.
It does not know about producers, retention or who reads.
"""

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from millstream.base.disk import Bytes, Disk, DiskFile
from millstream.base.errors import Corrupt
from millstream.log.indexes import OffsetIndex, TimeIndex, TimeMark
from millstream.log.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    SPAN_BYTES,
    BatchHeader,
    CorruptBatch,
    check_batch,
    read_header,
)

logger = logging.getLogger(__name__)

# How much of a segment a scan holds in memory at a time, unless one batch is larger.
SCAN_CHUNK_BYTES = 4 << 20
# How far behind damage the next intact batch is looked for: many times the largest batch.
FIND_BYTES_MAX = 64 << 20
# How many readers' positions a segment remembers.
HINTS_MAX = 64
LENGTH = struct.Struct(">i")
LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class DamagedSegment(Corrupt):
    """Bytes of a segment changed after they were written. They are never served."""

    def __init__(self, *, path: Path, position: int, reason: str, resume_offset: int) -> None:
        super().__init__(
            f"{path}: damaged at byte {position} ({reason}); the records there are not served, "
            f"reading can go on at offset {resume_offset}; restore the file from a copy, and "
            "check the disk"
        )
        self.path, self.position, self.reason = path, position, reason
        self.resume_offset = resume_offset


class ReadWouldBlock(Exception):
    """The bytes are not in memory: read again, in a thread that may wait for the device."""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


@dataclass(slots=True)
class Segment:
    """Batches with offsets [base_offset, end_offset). Owned by one PartitionLog."""

    base_offset: int
    end_offset: int
    log: DiskFile
    offsets: OffsetIndex
    times: TimeIndex
    created_ms: int
    index_interval_bytes: int
    # The largest timestamp so far and the last offset of the batch that brought it.
    largest: TimeMark = field(default=TimeMark(-1, -1))
    # Bytes below this position are verified whenever they are read.
    check_below: int = 0
    _bytes_since_entry: int = 0
    # Where the batch with this offset starts: a reader mostly goes on where it stopped.
    _hints: dict[int, int] = field(default_factory=dict)
    _damages: dict[int, DamagedSegment] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return self.log.size

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; without any, when the segment was started."""
        return self.largest.timestamp if self.largest.timestamp >= 0 else self.created_ms

    def append(self, batch: Bytes, header: BatchHeader) -> None:
        position = self.log.size
        self.log.append((batch,))
        self.note(position, header)

    def note(self, position: int, header: BatchHeader) -> None:
        """Take the batch at `position`, which is in the file already, into the indexes."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.largest.timestamp:
            self.largest = TimeMark(header.max_timestamp, last_offset)
        if self._bytes_since_entry > self.index_interval_bytes:
            self.offsets.add(last_offset, position)
            self.times.add(self.largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.batch_length + SPAN_BYTES
        self.end_offset = last_offset + 1

    def save_indexes(self) -> None:
        """Make the indexes on disk complete: at a clean stop and before a successor exists."""
        if self.largest.timestamp >= 0:
            self.times.add(self.largest)
        self.offsets.save()
        self.times.save()

    def seal(self) -> None:
        """No append comes any more. From now on every read is checked."""
        self.log.sync()
        self.save_indexes()
        self.offsets.freeze()
        self.times.freeze()
        self.check_below = self.log.size
        self._hints.clear()

    def close(self) -> None:
        self.log.close()
        self.offsets.close()
        self.times.close()

    def read(
        self, offset: int, *, end_position: int, bytes_max: int, must_not_block: bool = False
    ) -> memoryview:
        """Whole batches from the one that holds `offset` (or follows it), below `end_position`.

        At most `bytes_max`, but always one batch if there is one (KIP-74).
        """
        start = self._hints.get(offset)
        if start is None:
            start = self.offsets.position_for(offset)
        size = min(max(bytes_max, HEADER_BYTES), end_position - start)
        while True:
            data = self._read_bytes(start, size, must_not_block)
            span, missing_bytes = self._cut(data, start, offset, size_max=bytes_max)
            if len(span) or start + size >= end_position or not missing_bytes:
                break
            size = min(size + missing_bytes, end_position - start)
        return span

    def _read_bytes(self, position: int, size: int, must_not_block: bool) -> Bytes:
        if not must_not_block:
            return self.log.read(position, size)
        data = self.log.read_cached(position, size)
        if data is None:
            raise ReadWouldBlock
        return data

    def _cut(self, data: Bytes, at: int, offset: int, *, size_max: int) -> tuple[memoryview, int]:
        """The whole batches in `data` (read from position `at`) that answer a read of `offset`.

        Also how many bytes more it takes to hold the first such batch, 0 if it is there.
        """
        view = memoryview(data)
        available = len(view)
        first = self._skip_to(view, at, offset)
        if first < 0:  # all of it lies before the offset
            return view[:0], SCAN_CHUNK_BYTES
        position = last = first
        while available - position >= HEADER_BYTES:
            (length,) = LENGTH.unpack_from(view, position + 8)
            end = position + SPAN_BYTES + length
            if end > available or (end - first > size_max and position > first):
                break
            if at + position < self.check_below or length < BATCH_LENGTH_MIN:
                try:
                    check_batch(view, position)
                except CorruptBatch as error:
                    if position > first:
                        break
                    raise self.damage(at + position, error) from error
            last, position = position, end
        if position == first:
            return view[:0], end - available
        self._hint(read_header(view, last).last_offset + 1, at + position)
        return view[first:position], 0

    def _skip_to(self, view: memoryview, at: int, offset: int) -> int:
        """Where in `view` the batch starts that holds `offset` or follows it; -1 if behind it."""
        position = 0
        while len(view) - position >= HEADER_BYTES:
            try:
                header = read_header(view, position)
            except CorruptBatch as error:
                raise self.damage(at + position, error) from error
            if header.last_offset >= offset:
                return position
            position += header.size_bytes
        return -1

    def _hint(self, offset: int, position: int) -> None:
        if len(self._hints) >= HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def damage(self, position: int, error: CorruptBatch) -> DamagedSegment:
        """The error for broken bytes at `position`; the search for where to go on is done once."""
        if position not in self._damages:
            found = find_batch(self.log, position + 1, offset_min=self.base_offset)
            self._damages[position] = DamagedSegment(
                path=self.log.path,
                position=position,
                reason=error.reason,
                resume_offset=found[1].base_offset if found else self.end_offset,
            )
        return self._damages[position]

    def batches_since(self, timestamp: int, *, end_position: int) -> Iterator[memoryview]:
        """The batches that can hold a record with this timestamp or a later one, in order."""
        start = self.offsets.position_for(self.times.offset_for(timestamp))
        try:
            for position, header in walk_batches(self.log, start, end_position):
                if header.max_timestamp >= timestamp:
                    data = self.log.read(position, header.size_bytes)
                    try:
                        check_batch(data)
                    except CorruptBatch as error:
                        raise self.damage(position, error) from error
                    yield memoryview(data)
        except BrokenAt as broken:
            raise self.damage(broken.position, broken.error) from broken

    def intact_batches(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `start` on, leaping over damage."""
        position: int | None = start
        while position is not None:
            try:
                yield from walk_batches(self.log, position, self.log.size)
                return
            except BrokenAt as broken:
                logger.error("%s", self.damage(broken.position, broken.error))
                found = find_batch(self.log, broken.position + 1, offset_min=self.base_offset)
                position = found[0] if found else None


def open_segment(
    disk: Disk,
    directory: Path,
    base_offset: int,
    *,
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
        created_ms=created_ms,
        index_interval_bytes=index_interval_bytes,
        check_below=log.size,
    )


def walk_batches(
    file: DiskFile, start: int, end: int, *, must_check: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in [start, end). Raises BrokenAt where none can be."""
    position, chunk, chunk_at = start, memoryview(b""), start
    while position < end:
        if position + HEADER_BYTES > chunk_at + len(chunk):
            chunk_at = position
            chunk = memoryview(file.read(position, min(SCAN_CHUNK_BYTES, end - position)))
        try:
            header = read_header(chunk, position - chunk_at)
            if position + header.size_bytes > end:
                raise CorruptBatch(f"{header.size_bytes} bytes long, {end - position} are there")
            if must_check:
                if position + header.size_bytes > chunk_at + len(chunk):
                    chunk_at = position
                    size = max(SCAN_CHUNK_BYTES, header.size_bytes)
                    chunk = memoryview(file.read(position, min(size, end - position)))
                check_batch(chunk, position - chunk_at)
        except CorruptBatch as error:
            raise BrokenAt(position, error) from error
        yield position, header
        position += header.size_bytes


class BrokenAt(Exception):
    """A walk over batches cannot go on at `position`."""

    def __init__(self, position: int, error: CorruptBatch) -> None:
        super().__init__(position)
        self.position, self.error = position, error


def find_batch(file: DiskFile, start: int, *, offset_min: int) -> tuple[int, BatchHeader] | None:
    """The next intact batch at or after `start`, found by trying every byte that can be one."""
    data = bytes(file.read(start, FIND_BYTES_MAX))
    at = data.find(MAGIC, MAGIC_AT)
    while at >= 0:
        position = at - MAGIC_AT
        try:
            header = read_header(data, position)
            if header.base_offset >= offset_min and position + header.size_bytes <= len(data):
                return start + position, check_batch(data, position)
        except CorruptBatch:
            pass
        at = data.find(MAGIC, at + 1)
    return None
