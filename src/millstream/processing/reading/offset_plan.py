"""What a batch of a stream reads: from where to where in each partition, and what is lost. Pure.

A position is how far a stream has come in every partition of every topic. Spark keeps it in the
job's checkpoint, so its JSON is a format (docs/formats/stream_positions.md). A partition that a
position does not name is new: the stream owes it from offset 0. A topic of another id is another
topic, whatever its name. A source that was idle has its clock beside its topics. Nothing here asks
a broker (`topic_offsets.py`) or reads a record.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.base.errors import Corrupt, Rejected
from millstream.base.offsets import OffsetRange


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPosition:
    """How far a stream has come in one topic: the next offset of each partition."""

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)


Position = Mapping[str, TopicPosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableTopic:
    """A topic as its broker shows it; a range ends where a reader may read to."""

    topic_id: str
    partitions: Mapping[int, OffsetRange]


Available = Mapping[str, AvailableTopic]
Ranges = Mapping[Partition, OffsetRange]


class DataLost(Rejected):
    """What a stream has still to read is no longer there; `losses` says for each place why."""

    def __init__(self, *, losses: Mapping[str, str]) -> None:
        named = "; ".join(f"{place}: {why}" for place, why in sorted(losses.items()))
        super().__init__(
            f"Records are gone that were still to be read: {named}. To go on with what is left, "
            "set on_loss to skip; to keep records longer, raise the topic's retention.ms"
        )
        self.losses = losses


class NotAPosition(Corrupt):
    def __init__(self, *, found: object) -> None:
        super().__init__(
            f"The checkpoint holds {found!r}, which is not a position in topics: it belongs to "
            "another kind of source. Give this stream a checkpoint of its own"
        )
        self.found = found


# No topic can have this name: what an idle source last told the time.
CLOCK = "@clock"


def position_json(position: Position, *, clock_ms: int | None = None) -> dict[str, Any]:
    clock = {} if clock_ms is None else {CLOCK: clock_ms}
    return clock | {
        topic: {
            "id": at.topic_id,
            "offsets": {str(number): offset for number, offset in sorted(at.offsets.items())},
        }
        for topic, at in sorted(position.items())
    }


def clock_in(found: Mapping[str, Any]) -> int | None:
    clock = found.get(CLOCK)
    if clock is not None and not isinstance(clock, int):
        raise NotAPosition(found=found)
    return clock


def position_from(found: Mapping[str, Any]) -> Position:
    try:
        return {
            topic: TopicPosition(
                topic_id=str(at["id"]),
                offsets={int(number): int(offset) for number, offset in at["offsets"].items()},
            )
            for topic, at in found.items()
            if topic != CLOCK
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NotAPosition(found=found) from None


def position_at(available: Available, offsets: Mapping[Partition, int]) -> Position:
    """A position at these offsets, one for every partition that is available."""
    return {
        topic: TopicPosition(
            topic_id=found.topic_id,
            offsets={number: offsets[Partition(topic, number)] for number in found.partitions},
        )
        for topic, found in available.items()
    }


def losses_of(position: Position, available: Available) -> dict[str, str]:
    """Everything that the stream was still to read, and that is gone."""
    gone = {topic: "the topic was deleted" for topic in position if topic not in available}
    for topic, found in available.items():
        at = position.get(topic)
        if at is not None and at.topic_id != found.topic_id:
            gone[topic] = "the topic was deleted, and another one of that name made since"
            continue
        for number, there in found.partitions.items():
            if why := _loss(_next_offset(at, number), there):
                gone[str(Partition(topic, number))] = why
    return gone


def _loss(offset: int, there: OffsetRange) -> str:
    if offset < there.start:
        return f"offsets {OffsetRange(start=offset, end=there.start)} were deleted by retention"
    if offset > there.end:
        return f"it ends at {there.end}, before offset {offset} that was reached: it was cut"
    return ""


def _next_offset(at: TopicPosition | None, number: int) -> int:
    return 0 if at is None else at.offsets.get(number, 0)


def unread(position: Position, available: Available) -> dict[Partition, OffsetRange]:
    """What there is beyond the position, lost records left out; empty ranges are left out too."""
    found = {
        Partition(topic, number): _unread(_known(position, topic, there.topic_id), number, within)
        for topic, there in sorted(available.items())
        for number, within in sorted(there.partitions.items())
    }
    return {part: within for part, within in found.items() if within}


def _known(position: Position, topic: str, topic_id: str) -> TopicPosition | None:
    """The position in a topic; None in a topic that has only the name of the one read so far."""
    at = position.get(topic)
    return at if at is not None and at.topic_id == topic_id else None


def _unread(at: TopicPosition | None, number: int, there: OffsetRange) -> OffsetRange:
    offset = _next_offset(at, number)
    # Beyond the end: the partition was cut and starts anew.
    start = there.start if offset > there.end else max(offset, there.start)
    return OffsetRange(start=start, end=there.end)


def up_to(ends: Mapping[Partition, int], backlog: Ranges) -> dict[Partition, OffsetRange]:
    """The backlog no further than `ends`."""
    within = {
        part: OffsetRange(start=waiting.start, end=min(waiting.end, ends[part]))
        for part, waiting in backlog.items()
    }
    return {part: waiting for part, waiting in within.items() if waiting}


def ends_of(available: Available) -> dict[Partition, int]:
    return {
        Partition(topic, number): within.end
        for topic, there in available.items()
        for number, within in there.partitions.items()
    }


def records_max_for(
    backlog: Ranges, *, records_max: int | None, bytes_max: int | None, record_bytes: float
) -> int | None:
    """How many records a batch may have by either limit, if a record has `record_bytes`."""
    by_bytes = None if bytes_max is None else max(1, int(bytes_max / max(record_bytes, 1.0)))
    limits = [limit for limit in (records_max, by_bytes) if limit is not None]
    return min(limits) if limits and min(limits) < total(backlog) else None


def total(ranges: Ranges) -> int:
    return sum(map(len, ranges.values()))


def admit(backlog: Ranges, *, records_max: int | None) -> dict[Partition, OffsetRange]:
    """The start of the backlog, at most `records_max` offsets, divided by what each has waiting.

    Every partition with a backlog advances by one at least, so that none starves: with more
    partitions than `records_max`, that is the number of partitions.
    """
    if records_max is None or total(backlog) <= records_max:
        return dict(backlog)
    to_divide = max(0, records_max - len(backlog))
    waiting = total(backlog) - len(backlog)
    return {
        part: OffsetRange(
            start=within.start,
            end=within.start + 1 + (len(within) - 1) * to_divide // max(1, waiting),
        )
        for part, within in backlog.items()
    }


def advance(position: Position, available: Available, admitted: Ranges) -> Position:
    """The position once these ranges are read. Topics that are gone are left out of it.

    A partition that was read does not go: a broker that does not show it has not heard of it yet,
    and it must not be read again from its start when another one does.
    """
    return {
        topic: TopicPosition(
            topic_id=there.topic_id,
            offsets=_offsets_in(_known(position, topic, there.topic_id))
            | {
                number: _reached(position, Partition(topic, number), there, admitted)
                for number in there.partitions
            },
        )
        for topic, there in available.items()
    }


def _offsets_in(at: TopicPosition | None) -> dict[int, int]:
    return {} if at is None else dict(at.offsets)


def _reached(position: Position, part: Partition, there: AvailableTopic, admitted: Ranges) -> int:
    if part in admitted:
        return admitted[part].end
    at = _known(position, part.topic, there.topic_id)
    within = there.partitions[part.number]
    return max(within.start, min(_next_offset(at, part.number), within.end))


def ranges_between(start: Position, end: Position) -> Iterator[tuple[Partition, OffsetRange]]:
    """What a batch from `start` to `end` reads, in one order: the same on every replay."""
    for topic, at in sorted(end.items()):
        before = _known(start, topic, at.topic_id)
        for number, until in sorted(at.offsets.items()):
            since = _next_offset(before, number)
            within = OffsetRange(start=0 if since > until else since, end=until)
            if within:
                yield Partition(topic, number), within


def split(
    ranges: list[tuple[Partition, OffsetRange]], *, tasks_min: int
) -> list[tuple[Partition, OffsetRange]]:
    """The same ranges in at least `tasks_min` pieces of like size, so that all cores have work."""
    records = sum(len(within) for _, within in ranges)
    piece = max(1, -(-records // max(1, tasks_min)))
    return [
        (part, OffsetRange(start=start, end=min(start + piece, within.end)))
        for part, within in ranges
        for start in range(within.start, within.end, piece)
    ]
