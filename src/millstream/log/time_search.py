"""Finding records by their timestamps, in the segments of one partition.

Timestamps need not be in order. Each batch knows its largest one, and so does each segment, which
is enough to pass over most of them; the records of the rest are decoded.
"""

import bisect
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.log.record_batch import HEADER_BYTES, check_batch, decode_records, read_header
from millstream.log.segment import Segment

# How many batches are decoded to find the newest record before all of them are.
CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class TimedOffset:
    offset: int
    timestamp_ms: int


def segment_number(segments: Sequence[Segment], offset: int) -> int:
    """Which segment holds `offset`; the first one, if it lies before all of them."""
    return max(0, bisect.bisect_right(segments, offset, key=lambda s: s.base_offset) - 1)


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int
) -> TimedOffset | None:
    """The first visible record from `start_offset` on that is at least as new."""
    for segment in segments[segment_number(segments, start_offset) :]:
        if segment.visible_largest.timestamp >= timestamp_ms:
            for found in _records_since(segment, timestamp_ms, start_offset):
                return found
    return None


def newest(segments: Sequence[Segment], *, start_offset: int) -> TimedOffset | None:
    """The first of the visible records from `start_offset` on with the largest timestamp."""
    segments = segments[segment_number(segments, start_offset) :]
    largest = max(segment.visible_largest.timestamp for segment in segments)
    found = first_at_or_after(segments, largest, start_offset=start_offset)
    if found is not None:
        return found
    # It is deleted, or a producer wrote a timestamp in the batch that no record has. The headers
    # say which batches can hold the newest that is left: decode these, the others only if they lie.
    batches = heapq.nlargest(CANDIDATES, _batches(segments, start_offset))
    for newest_ms, place, position, segment in batches:
        if found is not None and (found.timestamp_ms, -found.offset) >= (newest_ms, place):
            return found
        found = _newer(found, segment, position, start_offset)
    if len(batches) < CANDIDATES:
        return found
    for _, _, position, segment in _batches(segments, start_offset):
        found = _newer(found, segment, position, start_offset)
    return found


def _batches(
    segments: Sequence[Segment], start_offset: int
) -> Iterator[tuple[int, int, int, Segment]]:
    """Of each visible batch: its largest timestamp, its place (first ones sort last), and where."""
    for segment in segments:
        for position, header in segment.batches_from(start_offset):
            if position < segment.visible_bytes:
                yield header.max_timestamp, -header.base_offset, position, segment


def _newer(
    found: TimedOffset | None, segment: Segment, position: int, start_offset: int
) -> TimedOffset | None:
    """The newest record of a batch, if it is newer than `found`, or as new and before it."""
    header = read_header(segment.log.read(position, HEADER_BYTES))
    batch = segment.log.read(position, header.size_bytes)
    check_batch(batch)
    for record in decode_records(batch):
        key = record.timestamp_ms, -record.offset
        is_newer = found is None or key > (found.timestamp_ms, -found.offset)
        if is_newer and record.offset >= start_offset:
            found = TimedOffset(record.offset, record.timestamp_ms)
    return found


def _records_since(segment: Segment, timestamp_ms: int, start_offset: int) -> Iterator[TimedOffset]:
    for batch in segment.batches_since(timestamp_ms):
        for record in decode_records(batch):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                yield TimedOffset(record.offset, record.timestamp_ms)
