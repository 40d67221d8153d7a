"""What of a share partition outlives the broker, and how changes add up to it.

Here are no bytes: their layout is in `share_state_records.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.broker.share.delivery import UNTOUCHED, DurableDelivery
from millstream.broker.share.offset_runs import OffsetRuns

# Kafka's: nobody has fetched yet, and share.auto.offset.reset will say where to start.
NO_START_OFFSET = -1


class StateBatch(NamedTuple):
    """Offsets [start, end) whose records have come equally far."""

    start: int
    end: int
    delivery: DurableDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """What has changed since the last one; below `start_offset` nothing matters any more.

    `complete_count` is how many offsets from there on are done with, which lag is counted by
    (KIP-1226).
    """

    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """A share partition as it is stored. Offsets in no batch were never acknowledged."""

    start_offset: int = NO_START_OFFSET
    complete_count: int = 0
    batches: tuple[StateBatch, ...] = ()

    @property
    def is_started(self) -> bool:
        return self.start_offset != NO_START_OFFSET

    def reaches_beyond(self, end: int) -> bool:
        return self.start_offset > end or any(batch.end > end for batch in self.batches)

    def cut_to(self, end: int) -> "ShareState":
        """Without what lies behind `end`: other records will have those offsets."""
        start = min(self.start_offset, end)
        batches = tuple(
            batch._replace(end=min(batch.end, end)) for batch in self.batches if batch.start < end
        )
        done = sum(one.end - one.start for one in batches if one.delivery.state.is_final)
        return ShareState(start_offset=start, complete_count=done, batches=batches)

    def changed(self, *changes: StateChange) -> "ShareState":
        """The later one counts; what it does not name stays."""
        if not changes:
            return self
        runs = OffsetRuns[DurableDelivery](min(change.start_offset for change in changes))
        _put(runs, self.batches)
        for change in changes:
            runs.drop_before(change.start_offset)
            _put(runs, change.batches)
        return replace(
            self,
            start_offset=changes[-1].start_offset,
            complete_count=changes[-1].complete_count,
            batches=touched_batches(runs),
        )


def _put(runs: OffsetRuns[DurableDelivery], batches: Iterable[StateBatch]) -> None:
    for batch in batches:
        start = max(batch.start, runs.start)
        if start > runs.end:
            runs.put(runs.end, start, UNTOUCHED)
        if start < batch.end:
            runs.put(start, batch.end, batch.delivery)


def touched_batches(runs: Iterable[tuple[int, int, DurableDelivery]]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*run) for run in runs if run[2] != UNTOUCHED)
