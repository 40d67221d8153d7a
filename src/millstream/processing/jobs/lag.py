"""How far a job is from the end of its topics, as that is now. Pure.

A batch that runs for an hour is an hour behind at its end: what Spark reports of a batch was true
when the batch was planned. `lag_meter.py` asks the broker meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.base.ports import Positions
from millstream.processing.reading.offset_plan import Partition

# What each source of a job has read: its name, and where it is.
Reached = Mapping[str, Positions]
Ends = Mapping[Partition, int]
Times = Mapping[Partition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """By source: offsets still to read, and how long the oldest unread record has been there.

    A source whose times are not known is in `records` only.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int | None:
        """None: not known."""
        return sum(self.records.values()) if self.records else None

    @property
    def oldest_ms(self) -> int | None:
        """Of all sources; None if one's is not known."""
        is_known = self.records and all(source in self.ms for source in self.records)
        return max(self.ms.values()) if is_known else None


def reached_in(report: Mapping[str, Any]) -> dict[str, Positions]:
    """Where each source is after a batch that Spark reports."""
    found: dict[str, Positions] = {}
    for number, source in enumerate(report.get("sources") or ()):
        position = source.get("endOffset")
        if isinstance(position, Mapping):
            found[", ".join(topics_in(position)) or str(number)] = {
                topic: {int(at): int(offset) for at, offset in position[topic]["offsets"].items()}
                for topic in topics_in(position)
            }
    return found


def topics_in(position: Mapping[str, Any]) -> list[str]:
    """A position has topics by name, and words of its own that start with @."""
    return [name for name in position if not name.startswith("@")]


def unread(positions: Positions, ends: Ends) -> dict[Partition, int]:
    """The partitions that have more, and where they are to be read on. One that is new is unread
    from its start."""
    found = {}
    for part, end in ends.items():
        if part.topic in positions:
            at = positions[part.topic].get(part.number, 0)
            if at < end:
                found[part] = at
    return found


def lag_of(reached: Reached, ends: Ends, times: Times, *, now_ms: int) -> Lag:
    """`times`: when the oldest unread record of a partition was written, where that is known."""
    records, ages = {}, {}
    for source, positions in reached.items():
        left = unread(positions, ends)
        records[source] = sum(ends[part] - at for part, at in left.items())
        age_ms = oldest_age_ms(left, times, now_ms=now_ms)
        if age_ms is not None:
            ages[source] = age_ms
    return Lag(records=records, ms=ages)


def oldest_age_ms(left: Iterable[Partition], times: Times, *, now_ms: int) -> int | None:
    """0 if nothing is left; None if nothing is known of what is."""
    ages = list(_ages(left, times, now_ms))
    if not ages:
        return 0 if not list(left) else None
    return max(ages)


def _ages(left: Iterable[Partition], times: Times, now_ms: int) -> Iterator[int]:
    for part in left:
        if part in times:
            yield max(0, now_ms - times[part])
