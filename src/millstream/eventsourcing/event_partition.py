"""One partition as this process knows it: caught up with the log when someone asks.

Whoever reads and whoever writes share it. A lock guards the state; events are read without it.
"""

import threading
from collections.abc import Iterator, Sequence

from millstream.base.offsets import OffsetRange
from millstream.eventsourcing.event_log import EventLog, collector_paused
from millstream.eventsourcing.partition_state import PartitionState
from millstream.eventsourcing.reading_plan import Scan, plan_scans
from millstream.eventsourcing.stored_event import StoredEvent, decode_events


class EventPartition:
    """`lock` is held by who changes the state, and by who looks at it."""

    def __init__(self, log: EventLog, number: int, state: PartitionState) -> None:
        self.log, self.number, self.state = log, number, state
        self.lock = threading.RLock()

    def catch_up(self) -> None:
        """Know all that is committed as of now."""
        committed = self.log.committed(self.number)
        if self.state.end >= committed.end:
            return
        with self.lock:
            start = max(self.state.end, committed.start)
            within = OffsetRange(start=start, end=committed.end)
            for records, reached in self.log.scan(self.number, within):
                self.state.take_read(records, end=reached)

    def is_fresh(self) -> bool:
        """Whether nothing is committed that is not known."""
        return self.state.end >= self.log.committed(self.number).end

    def events(self, seqs: Sequence[int]) -> Iterator[StoredEvent]:
        """Those of these numbers, which rise: old ones from the log, new ones from memory."""
        with self.lock:
            scans, recent = plan_scans(seqs, self.state)
        for scan in scans:
            yield from self._scanned(scan)
        yield from decode_events(recent, place=self.log.place(self.number))

    def event(self, seq: int) -> StoredEvent:
        return next(self.events([seq]))

    def _scanned(self, scan: Scan) -> Iterator[StoredEvent]:
        place = self.log.place(self.number)
        for records, _ in self.log.scan(self.number, scan.within):
            values = records.values
            if scan.offsets is not None:
                found = zip(records.offsets, values, strict=True)
                values = [value for offset, value in found if offset in scan.offsets]
            with collector_paused():
                events = decode_events(values, place=place)
            yield from events
