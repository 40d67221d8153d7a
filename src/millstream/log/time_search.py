"""Finding records by their timestamps, in the segments of one partition.

Timestamps need not be in order. Each batch knows its largest one, and so does each segment, which
is enough to pass over most of them; the records of the rest are decoded.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.log.record_batch import NO_TIMESTAMP, decode_records
from millstream.log.segment import Segment


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
    # It is deleted, or a producer wrote a timestamp in the batch that no record has: ask them all.
    left = (each for s in segments for each in _records_since(s, NO_TIMESTAMP, start_offset))
    return max(left, key=lambda each: each.timestamp_ms, default=None)


def _records_since(segment: Segment, timestamp_ms: int, start_offset: int) -> Iterator[TimedOffset]:
    for batch in segment.batches_since(timestamp_ms):
        for record in decode_records(batch):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                yield TimedOffset(record.offset, record.timestamp_ms)
