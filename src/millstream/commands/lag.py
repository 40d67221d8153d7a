"""How far a consumer group is behind, and how far it is from losing data to retention.

Pure: offsets, times and retention in; lag, headroom and a sentence out.

        start        committed            end
    ------|--------------|-----------------|
          |<- headroom ->|<----- lag ----->|

Retention moves `start` to the right. When it passes `committed`, records are gone that the group
has not read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from millstream.base.offsets import OffsetRange
from millstream.base.quantity import format_duration_roughly, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a topic forgets, and when. -1 is never, as in Kafka."""

    retention_ms: int
    retention_bytes: int
    cleanup_policy: str

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def by_time(self) -> bool:
        return self.deletes and self.retention_ms >= 0

    @property
    def by_size(self) -> bool:
        return self.deletes and self.retention_bytes >= 0

    def __str__(self) -> str:
        time = format_duration_roughly(self.retention_ms) if self.by_time else "forever"
        size = f", {format_size(self.retention_bytes)} per partition" if self.by_size else ""
        return f"{time}{size}{', compacted' if 'compact' in self.cleanup_policy else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One live consumer of a group."""

    id: str
    client_id: str
    host: str


class Place(NamedTuple):
    """Where a group goes on. A share group tells its lag: some after this place may be done."""

    offset: int
    lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """Where a group is in one partition. `place` is None before its first commit."""

    topic: str
    partition: int
    place: Place | None
    available: OffsetRange
    retention: Retention | None
    """None when the caller may not see it."""
    next_record_ms: int | None
    """When the next record to read was written; None when there is none or it is not known."""
    member: Member | None

    @property
    def committed(self) -> int | None:
        return None if self.place is None else self.place.offset

    @property
    def lag(self) -> int | None:
        return lag_of(self.place, self.available)

    @property
    def lost(self) -> int:
        """Records that retention took before the group read them."""
        return 0 if self.committed is None else max(0, self.available.start - self.committed)

    @property
    def headroom(self) -> int | None:
        """Records that retention can still take before it reaches the group."""
        if self.committed is None:
            return None
        return max(0, min(self.committed, self.available.end) - self.available.start)

    def loses_data_in_ms(self, *, now_ms: int) -> int | None:
        """The soonest that time-based retention may take the next record.

        Segments are dropped whole, so it is often later, never sooner. None: it will not happen.
        """
        kept = self.retention
        if not self.lag or kept is None or not kept.by_time or self.next_record_ms is None:
            return None
        return max(0, self.next_record_ms + kept.retention_ms - now_ms)

    def risk(self, *, now_ms: int) -> str:
        if self.lost:
            return f"ALREADY LOST {self.lost:,} {'record' if self.lost == 1 else 'records'}"
        if not self.lag:
            return "none" if self.lag == 0 else "-"
        if self.retention is None:
            return "unknown"
        by_size = "by size" if self.retention.by_size else ""
        left_ms = self.loses_data_in_ms(now_ms=now_ms)
        if left_ms is None:
            unknown = self.retention.by_time and self.next_record_ms is None
            return "unknown" if unknown else f"may lose data {by_size}" if by_size else "none"
        if left_ms == 0:
            return "may lose data NOW"
        sooner = f", sooner {by_size}" if by_size else ""
        return f"loses data in {format_duration_roughly(left_ms)}{sooner}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSum:
    """The lag of several partitions. Where nothing was committed it is unknown, which is not 0."""

    known: int
    never_committed: int
    """How many partitions have no commit, and so no lag to add."""

    @property
    def lag(self) -> int | None:
        return None if self.never_committed else self.known

    def __str__(self) -> str:
        if not self.never_committed:
            return f"{self.known:,}"
        noun = "partition" if self.never_committed == 1 else "partitions"
        return f"{self.known:,} + {self.never_committed:,} {noun} never committed"


def lag_of(place: Place | None, available: OffsetRange) -> int | None:
    """Records that a group can still read: what is lost is not counted."""
    if place is None:
        return None
    if place.lag is not None:
        return max(0, place.lag)
    return max(0, available.end - max(place.offset, available.start))


def add_lags(lags: Iterable[int | None]) -> LagSum:
    lags = list(lags)
    known = [lag for lag in lags if lag is not None]
    return LagSum(known=sum(known), never_committed=len(lags) - len(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTotal:
    """The lag of several partitions together: of a topic, a consumer or a group."""

    name: str
    partitions: int
    lag: LagSum
    lost: int
    loses_data_in_ms: int | None


def total(name: str, partitions: Iterable[PartitionLag], *, now_ms: int) -> LagTotal:
    chosen = list(partitions)
    losses = [part.loses_data_in_ms(now_ms=now_ms) for part in chosen]
    return LagTotal(
        name=name,
        partitions=len(chosen),
        lag=add_lags(part.lag for part in chosen),
        lost=sum(part.lost for part in chosen),
        loses_data_in_ms=min((loss for loss in losses if loss is not None), default=None),
    )
