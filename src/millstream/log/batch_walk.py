"""Walking over the batches of a segment, and telling whether each one can be right.

The checksum of a batch leaves out its first 21 bytes: base offset, length, leader epoch, format
and the checksum itself. What is wrong there shows in what stands around it: a batch starts at the
offset where the one before it ended, a wrong length leads to bytes that are no batch, and the
leader epoch is the one that `leader-epoch-checkpoint` gives for the offset. Only compaction
leaves gaps between offsets; then at least no batch may reach into the next one.
Reads bytes through a function it is given; owns nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from millstream.base.disk import Bytes
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.record_batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    SPAN,
    SPAN_BYTES,
    BatchHeader,
    CorruptBatch,
    check_batch,
    read_header,
)

# How much of a segment a walk holds in memory at a time, unless one batch is larger.
WALK_CHUNK_BYTES = 4 << 20
# How far behind a break the next batch is looked for: many times the largest batch.
FIND_BYTES_MAX = 64 << 20

ReadBytes: TypeAlias = Callable[[int, int], Bytes]


class BrokenAt(Exception):
    """A walk cannot go on at `position`, where a batch with offset `expected` should be."""

    def __init__(self, position: int, expected: int, error: CorruptBatch) -> None:
        super().__init__(position)
        self.position, self.expected, self.error = position, expected, error


@dataclass(frozen=True, slots=True)
class Walk:
    """The batches in the bytes [.., end) of a segment with offsets below `offset_end`."""

    read: ReadBytes
    end: int
    offset_end: int
    epochs: LeaderEpochs
    # Checksums of batches that start below this position are verified.
    check_below: int
    # Compaction may have removed records; an active segment is never compacted.
    may_have_gaps: bool
    chunk_bytes: int = WALK_CHUNK_BYTES

    def batches(self, position: int, expected: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, which starts with `expected`.

        Raises BrokenAt where bytes cannot be the batch that should be there.
        """
        chunk, chunk_at = memoryview(b""), position
        while position < self.end:
            at = position - chunk_at
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_at, at = self._chunk(position, self.chunk_bytes), position, 0
            try:
                header = read_header(chunk, at)
                self._check_place(header, position, expected)
                if position < self.check_below:
                    if at + header.size_bytes > len(chunk):
                        size = max(self.chunk_bytes, header.size_bytes)
                        chunk, chunk_at, at = self._chunk(position, size), position, 0
                    check_batch(chunk, at)
            except CorruptBatch as error:
                raise BrokenAt(position, expected, error) from error
            yield position, header
            position += header.size_bytes
            expected = header.last_offset + 1

    def _chunk(self, position: int, size: int) -> memoryview:
        return memoryview(self.read(position, min(size, self.end - position)))

    def _check_place(self, header: BatchHeader, position: int, expected: int) -> None:
        if position + header.size_bytes > self.end:
            raise CorruptBatch(f"{header.size_bytes} bytes long, {self.end - position} are there")
        if header.base_offset != expected and not (
            self.may_have_gaps and expected < header.base_offset <= self._gap_max(header, position)
        ):
            raise CorruptBatch(f"offset {header.base_offset} where {expected} must follow")
        epoch = self.epochs.at(header.base_offset)
        if epoch not in (-1, header.leader_epoch):
            raise CorruptBatch(f"leader epoch {header.leader_epoch}, epoch {epoch} wrote it")

    def _gap_max(self, header: BatchHeader, position: int) -> int:
        """The largest offset with which the batch would still end before what follows it."""
        behind = position + header.size_bytes
        next_offset = self.offset_end
        if behind + SPAN_BYTES <= self.end:
            next_offset, _ = SPAN.unpack(self.read(behind, SPAN_BYTES))
        return next_offset - 1 - header.last_offset_delta

    def resumption(self, broken: BrokenAt, anchor: int) -> tuple[int, int]:
        """Where to go on behind a break: position and offset of an intact batch.

        It is the first one from which intact batches lead to `anchor`, where a batch is known to
        start (or the segment to end). Without that, the payload of a broken batch that holds
        batches itself could be taken for them.
        """
        found = self.find(broken, anchor, must_reach=True)
        if found is not None:
            return found
        if anchor >= self.end:
            return self.end, self.offset_end
        offset, _ = SPAN.unpack(self.read(anchor, SPAN_BYTES))
        return anchor, offset

    def find(
        self, broken: BrokenAt, anchor: int, *, must_reach: bool = False
    ) -> tuple[int, int] | None:
        """The next intact batch behind a break, found by trying every byte that can be one."""
        start = broken.position + 1
        data = bytes(self.read(start, max(0, min(FIND_BYTES_MAX, anchor - start))))
        at = data.find(MAGIC, MAGIC_AT)
        while at >= 0:
            position = start + at - MAGIC_AT
            offset = _intact_offset(data, position - start)
            if broken.expected <= offset < self.offset_end and (
                not must_reach or self._leads_to(position, offset, anchor)
            ):
                return position, offset
            at = data.find(MAGIC, at + 1)
        return None

    def _leads_to(self, position: int, offset: int, anchor: int) -> bool:
        walk = Walk(self.read, anchor, self.offset_end, self.epochs, anchor, self.may_have_gaps)
        try:
            for _ in walk.batches(position, offset):
                pass
        except BrokenAt:
            return False
        return True


def _intact_offset(data: bytes, position: int) -> int:
    """The base offset of the intact batch at `position`; -1 if there is none."""
    try:
        return check_batch(data, position).base_offset
    except CorruptBatch:
        return -1
