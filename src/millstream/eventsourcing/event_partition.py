"""One partition as this process knows it: caught up with the log when someone asks.

Whoever reads and whoever writes share it. A lock guards the state; events are read without it.
With an index file, a start reads only what came since it was written.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millstream.base.collector import collector_paused
from millstream.base.errors import Corrupt
from millstream.base.offsets import OffsetRange
from millstream.eventsourcing.event_log import EventLog
from millstream.eventsourcing.index_file import DamagedIndex, read_index, write_index
from millstream.eventsourcing.partition_state import PartitionState, ReadRecords
from millstream.eventsourcing.reading_plan import Scan, plan_scans
from millstream.eventsourcing.stored_event import StoredEvent, decode_event, decode_events

logger = logging.getLogger(__name__)

# To write the index of a million events takes a tenth of a second, to read them again seconds.
INDEX_FILE_EVENTS = 200_000
# A file is written at the end if a start would read so many more without it.
INDEX_FILE_EVENTS_MIN = 1_000


class NumbersLost(Corrupt):
    def __init__(self, *, place: str, start: int) -> None:
        super().__init__(
            f"{place}: all events before offset {start} were deleted, and none is left that says "
            "where their numbers go on. To begin again with 1 would give numbers and versions "
            "twice: nothing is written. Write new events to another topic, and keep those of a "
            "topic of events (retention.ms=-1, retention.bytes=-1)"
        )
        self.place, self.start = place, start


class EventPartition:
    """`lock` is held by who changes the state, and by who looks at more than one thing of it."""

    def __init__(
        self,
        log: EventLog,
        number: int,
        new_state: Callable[[], PartitionState],
        *,
        index_path: Path | None = None,
    ) -> None:
        self.log, self.number, self._new_state = log, number, new_state
        self.lock = threading.RLock()
        self._index_path, self._index_seq = index_path, 0
        self._is_proved = True
        self.state = self._loaded()

    # --- catch up -----------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Know all that is committed as of now."""
        committed = self.log.committed(self.number)
        if self.state.end >= committed.end and self._is_proved:
            return
        with self.lock:
            if not self._is_proved:
                self._prove(committed)
            start = max(self.state.end, committed.start)
            self._take(OffsetRange(start=start, end=committed.end))

    def _take(self, within: OffsetRange) -> None:
        try:
            for records, reached in self.log.scan(self.number, within):
                self.state.take_read(records, end=reached)
                self.keep_index()
        except Corrupt:  # half of a list may be taken: who asks again shall be told the same
            self.state, self._index_seq = self._new_state(), 0
            raise

    def check_numbers(self) -> None:
        """Raises NumbersLost if nobody can tell which number comes next."""
        if self.state.seq == 0 and (start := self.log.committed(self.number).start) > 0:
            raise NumbersLost(place=self.log.place(self.number), start=start)

    def is_end(self, offset: int) -> bool:
        """Whether nothing is committed behind it, as of now."""
        return self.log.committed(self.number).end <= offset

    # --- read ---------------------------------------------------------------------------------

    def events(self, seqs: Sequence[int]) -> Iterator[StoredEvent]:
        """Those of these numbers, which rise: old ones from the log, new ones from memory."""
        place = self.log.place(self.number)
        for records in self.records(seqs):
            with collector_paused():
                events = decode_events(records.values, place=place)
            yield from events

    def event(self, seq: int) -> StoredEvent:
        return next(self.events([seq]))

    def records(self, seqs: Sequence[int]) -> Iterator[ReadRecords]:
        with self.lock:
            scans, recent = plan_scans(seqs, self.state)
        for scan in scans:
            yield from self._scanned(scan)
        if recent.values:
            yield recent

    def _scanned(self, scan: Scan) -> Iterator[ReadRecords]:
        for records, _ in self.log.scan(self.number, scan.within):
            yield records if scan.offsets is None else records.only(scan.offsets)

    # --- the index file -----------------------------------------------------------------------

    def keep_index(self) -> None:
        """Write the index file, if many events are not in it."""
        self._keep_index(INDEX_FILE_EVENTS)

    def close(self) -> None:
        self._keep_index(INDEX_FILE_EVENTS_MIN)

    def _keep_index(self, events_min: int) -> None:
        """It is derived: that it cannot be written is told, and stops nobody."""
        if self._index_path is None or self.state.seq - self._index_seq < events_min:
            return
        with self.lock:
            try:
                write_index(self._index_path, self.state)
            except OSError as error:
                text = "%s: the index file was not written (%s). The store goes on without it"
                logger.warning(text, self._index_path, error)
            self._index_seq = self.state.seq  # also then: it is not tried again at once

    def _loaded(self) -> PartitionState:
        state = self._new_state()
        if self._index_path is None:
            return state
        try:
            if not read_index(self._index_path, state):
                return state
        except DamagedIndex as error:
            logger.warning("%s", error)
            return self._new_state()
        except OSError as error:
            logger.warning("%s cannot be read (%s). The log is read", self._index_path, error)
            return state
        self._index_seq, self._is_proved = state.seq, state.seq == 0
        return state

    def _prove(self, committed: OffsetRange) -> None:
        """That the index is one of this log: its last event is there. Else it is thrown away."""
        at = self.state.offset_of(self.state.seq)
        within = OffsetRange(start=max(at, committed.start), end=min(at + 1, committed.end))
        found = [
            value for records, _ in self.log.scan(self.number, within) for value in records.values
        ]
        place = self.log.place(self.number)
        if not found or decode_event(found[0], place=place).hash != self.state.last_hash.hex():
            logger.warning("%s: %s is of another log. It is made again", place, self._index_path)
            self.state, self._index_seq = self._new_state(), 0
        self._is_proved = True
