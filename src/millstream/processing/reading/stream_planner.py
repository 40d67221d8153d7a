"""Plans the batches of a stream, and the ranges of a batch read: the broker asked, the plan made.

Lives in the driver, one per stream. The decisions are in `offset_plan.py`; positions go in and out
as the JSON that Spark keeps in the checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.base.clock import Clock, system_clock
from millstream.base.offsets import OffsetRange
from millstream.processing.reading.heartbeats import IdleClock
from millstream.processing.reading.offset_plan import (
    Available,
    DataLost,
    Partition,
    Ranges,
    admit,
    advance,
    clock_in,
    ends_of,
    losses_of,
    position_at,
    position_from,
    position_json,
    records_max_for,
    total,
    unread,
    up_to,
)
from millstream.processing.reading.places import AtOffsets, Earliest, Latest
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.topic_offsets import TopicOffsets
from millstream.processing.reading.topic_read import TopicRead

SAMPLE_RECORDS_MAX = 200
# An answer takes milliseconds: a broker that needs this long was away.
ANSWER_MS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How much a batch may read; None is no limit."""

    records_max: int | None = None
    bytes_max: int | None = None


def batch_ranges(read: TopicRead) -> list[tuple[Partition, OffsetRange]]:
    """What a batch read of the topics reads, as they are now."""
    offsets = TopicOffsets(read)
    there = offsets.available()
    if isinstance(read.start, Earliest):
        offsets.require_no_holes()
    starts = offsets.offsets_at(read.start, there, option="starting", unnamed=Earliest())
    ends = offsets.offsets_at(read.end, there, option="ending", unnamed=Latest())
    return [
        (part, OffsetRange(start=starts[part], end=end))
        for part, end in sorted(ends.items())
        if starts[part] < end
    ]


class StreamPlanner:
    """What a stream reads next. `_target` is where a run over what is there now ends."""

    def __init__(self, read: TopicRead, *, clock: Clock = system_clock) -> None:
        self._read = read
        self._clock = clock
        self._idle = IdleClock(_idle_ms(read), now_ms=clock())
        self._offsets = TopicOffsets(read)
        self._written = TopicOffsets(replace(read, read_committed=False))
        self._seen: Available = {}
        self._target: Available | None = None
        self._record_bytes: float | None = None

    def first_position(self) -> dict[str, Any]:
        if isinstance(self._read.start, Earliest):
            self._offsets.require_no_holes()
        there = self._offsets.available()
        starts = self._offsets.offsets_at(
            self._read.start, there, option="starting", unnamed=Earliest()
        )
        return position_json(position_at(there, starts))

    def stop_at_what_is_there_now(self) -> None:
        self._target = self._offsets.available()

    def last_seen(self) -> dict[str, Any] | None:
        """The end of everything, as of the last plan: what the stream's lag is measured against."""
        return position_json(position_at(self._seen, ends_of(self._seen))) if self._seen else None

    def next_position(self, start: dict[str, Any], limits: BatchLimits) -> dict[str, Any]:
        position = position_from(start)
        asked_ms = self._clock()
        there = self._offsets.available() if self._target is None else self._target
        self._seen = there
        if self._read.on_loss == "fail" and (losses := losses_of(position, there)):
            raise DataLost(losses=losses)
        backlog = up_to(self._ends(there), unread(position, there))
        admitted = admit(backlog, records_max=self._records_max(backlog, limits))
        was_away = self._clock() - asked_ms >= ANSWER_MS_MAX
        clock_ms = self._clock_after(clock_in(start), there, came=bool(admitted) or was_away)
        return position_json(advance(position, there, admitted), clock_ms=clock_ms)

    def _clock_after(self, told_ms: int | None, there: Available, *, came: bool) -> int | None:
        """A run over what is there now ends: it waits for nobody, and tells no time."""
        if self._target is not None:
            return told_ms
        told = self._idle.tell(told_ms, now_ms=self._clock(), came=came)
        return told_ms if told != told_ms and self._has_undecided(there) else told

    def _has_undecided(self, there: Available) -> bool:
        """Whether records wait behind a transaction that is open: what they tell is yet to come."""
        return ends_of(self._written.available()) != ends_of(there)

    def _ends(self, there: Available) -> Mapping[Partition, int]:
        """How far the stream goes, if not to the end: up to a time or offset, be it yet to come."""
        place = self._read.end
        if isinstance(place, AtOffsets):
            ends = ends_of(there)
            return {part: min(end, _or(place.of(*part), end)) for part, end in ends.items()}
        return self._offsets.offsets_at(place, there, option="ending", unnamed=Latest())

    def _records_max(self, backlog: Ranges, limits: BatchLimits) -> int | None:
        return records_max_for(
            backlog,
            records_max=limits.records_max,
            bytes_max=limits.bytes_max,
            record_bytes=self._weighed(backlog, limits.bytes_max),
        )

    def _weighed(self, backlog: Ranges, bytes_max: int | None) -> float:
        """Bytes of a record; looked up anew whenever the limit might matter."""
        if bytes_max is None or not backlog:
            return 0.0
        known = self._record_bytes
        if known is None or total(backlog) * known > bytes_max / 2:
            known = self._record_bytes = self._sampled_bytes(backlog)
        return known

    def _sampled_bytes(self, backlog: Ranges) -> float:
        """The mean of a few records from where the most wait."""
        part, within = max(backlog.items(), key=lambda item: len(item[1]))
        end = min(within.end, within.start + SAMPLE_RECORDS_MAX)
        first = OffsetRange(start=within.start, end=end)
        sizes = [
            len(record.key() or b"") + len(record.value() or b"")
            for records in RangeReader(self._read).read(part, first)
            for record in records
        ]
        return sum(sizes) / len(sizes) if sizes else 0.0


def _idle_ms(read: TopicRead) -> int | None:
    return read.event_time.idle_ms if read.event_time and read.beats else None


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset
