"""What a share group reads of a log: whole batches, and which of their records may be had.

A read may wait for the device, so it is a value of its own that a thread can run. What becomes of
it is decided on the loop, when it is back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from millstream.broker.share.acquisition import Fetched, fetched_from
from millstream.broker.share.share_partition import AcquiredRecords
from millstream.broker.share.share_reset import ResetTo, ShareReset
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import BatchHeader, read_header
from millstream.log.transaction_index import AbortedTransaction

# Less is not worth a read.
READ_BYTES_MIN = 64 << 10


class HandedOut(NamedTuple):
    """For one member: the batches, and those of their records that are its now."""

    records: memoryview
    acquired: tuple[AcquiredRecords, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRead:
    """The next read of a share: from `offset`, before `end`. `run` may block."""

    log: PartitionLog
    offset: int
    end: int
    bytes_max: int
    is_committed_only: bool

    def run(self, *, must_not_block: bool = False) -> "ReadBatches":
        aborted: list[AbortedTransaction] = []
        if self.is_committed_only:
            span, aborted = self.log.read_stable(
                self.offset,
                bytes_max=self.bytes_max,
                end_offset=self.end,
                must_not_block=must_not_block,
            )
        else:
            span = self.log.read(
                self.offset, bytes_max=self.bytes_max, must_not_block=must_not_block
            )
        return self._batches(span, aborted)

    def _batches(self, span: memoryview, aborted: list[AbortedTransaction]) -> "ReadBatches":
        headers = [*_headers_of(span)]
        if headers:
            return ReadBatches(span, headers, fetched_from(self.offset, headers, aborted))
        # Compaction has left nothing up to there.
        return ReadBatches(span, headers, Fetched(offset=self.offset, batches=(), end=self.end))


class ReadBatches(NamedTuple):
    """What a read gave."""

    span: memoryview
    headers: list[BatchHeader]
    fetched: Fetched

    @property
    def record_bytes(self) -> int | None:
        """The mean size of a record; None if there is none."""
        count = sum(header.record_count for header in self.headers)
        return len(self.span) // count if count else None

    def cut_to(self, acquired: tuple[AcquiredRecords, ...]) -> memoryview:
        """The batches from the first to the last that hold something acquired."""
        first, last = acquired[0].offsets.start, acquired[-1].offsets.end - 1
        start = end = position = 0
        for header in self.headers:
            if header.last_offset < first:
                start = position + header.size_bytes
            position += header.size_bytes
            if header.base_offset <= last:
                end = position
        return self.span[start:end]


def _headers_of(span: memoryview) -> Iterator[BatchHeader]:
    position = 0
    while position < len(span):
        header = read_header(span, position)
        yield header
        position += header.size_bytes


def first_offset(log: PartitionLog, reset: ShareReset, *, now_ms: int) -> int:
    """Where a group begins that has read nothing of this log."""
    match reset.to:
        case ResetTo.EARLIEST:
            return log.start_offset
        case ResetTo.LATEST:
            return log.high_watermark
        case ResetTo.TIME:
            found = log.first_at_or_after(now_ms - reset.age_ms)
            return log.high_watermark if found is None else found.offset
