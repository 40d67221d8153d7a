"""One partition as one share group is served from it: its records, its journal, who waits.

It ties the pure parts together, and neither reads nor writes: `share_partitions.py` does.
"""

from collections.abc import Callable
from dataclasses import replace

from millstream.broker.deadline_timer import DeadlineTimer
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.partition import ServedPartition
from millstream.broker.share.share_partition import SharePartition, ShareTerms
from millstream.broker.share.share_state import ShareState
from millstream.broker.share.share_state_records import (
    ShareJournal,
    SharePartitionKey,
    ShareStateRecord,
    StoredShare,
)

# What a record is taken to be as long as none was read.
RECORD_BYTES_GUESS = 1_000


class ServedShare:
    """Owned by the broker's loop. Without `records` nobody has said yet where to start."""

    __slots__ = (
        "_awaited_ms",
        "_timer",
        "_waiting",
        "is_gone",
        "is_starting",
        "journal",
        "key",
        "must_repair",
        "record_bytes",
        "records",
    )

    def __init__(self, key: SharePartitionKey, stored: StoredShare, *, terms: ShareTerms) -> None:
        self.key = key
        self.journal = ShareJournal(key, stored)
        self.records: SharePartition | None = None
        if stored.state.is_started:
            self.records = SharePartition.restored(stored.state, terms=terms)
        # A record may not have reached the disk: all there is goes before anything else.
        self.must_repair = False
        # Where it begins is not stored yet.
        self.is_starting = False
        # Forgotten with its group or topic: nothing more is stored.
        self.is_gone = False
        self.record_bytes = RECORD_BYTES_GUESS
        self._waiting: dict[Callable[[], None], None] = {}  # in order of arrival
        self._timer = DeadlineTimer()
        self._awaited_ms: int | None = None

    @property
    def place(self) -> TopicIdPartition:
        return TopicIdPartition(self.key.topic_id, self.key.partition)

    @property
    def state(self) -> ShareState:
        return self.records.state if self.records is not None else ShareState()

    @property
    def is_in_doubt(self) -> bool:
        """Whether something must be stored before anything is answered."""
        return self.must_repair or self.is_starting

    def start_at(self, offset: int, terms: ShareTerms) -> SharePartition:
        """Nobody has fetched before: this is where the group begins."""
        self.records = SharePartition(offset, terms=terms)
        self.is_starting = True
        return self.records

    def stored_anew(self) -> StoredShare:
        """What a share that takes this one's place begins with: the next epoch of its state."""
        stored = self.journal.stored
        return replace(stored, state_epoch=stored.state_epoch + 1, state=ShareState())

    def next_record(self, *, now_ms: int) -> ShareStateRecord | None:
        """What has to be stored; None if that is nothing."""
        if self.records is None or self.is_gone:
            return None
        if not self.is_in_doubt:
            return self.journal.next_record(self.records, now_ms=now_ms)
        self.must_repair = False
        return self.journal.repair(self.records, now_ms=now_ms)

    def snapshot(self, *, now_ms: int) -> ShareStateRecord:
        if self.records is None:
            return self.journal.begin(now_ms=now_ms)
        return self.journal.repair(self.records, now_ms=now_ms)

    def close(self) -> None:
        self.is_gone = True
        self.forget_deadline()
        self._wake_all()

    # --- who waits ----------------------------------------------------------------------------
    #
    # One is woken at a time, the first that came: it takes what it may have and, whatever becomes
    # of it, looks whether there is more for the next one. So idle members cost nothing.

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def wait(self, wake: Callable[[], None], partition: ServedPartition) -> None:
        if not self._waiting:
            partition.watchers.add(self._log_has_changed)
        self._waiting[wake] = None

    def wait_no_more(self, wake: Callable[[], None], partition: ServedPartition) -> None:
        self._waiting.pop(wake, None)
        if not self._waiting:
            partition.watchers.discard(self._log_has_changed)

    def wake_next(self) -> None:
        for wake in self._waiting:
            wake()
            return

    def _log_has_changed(self, new_bytes: int) -> None:
        """It has grown; or it is gone, which all must know."""
        if new_bytes:
            self.wake_next()
        else:
            self._wake_all()

    def _wake_all(self) -> None:
        for wake in tuple(self._waiting):
            wake()

    # --- time ---------------------------------------------------------------------------------

    def is_awaiting(self, deadline_ms: int) -> bool:
        return self._awaited_ms is not None and self._awaited_ms <= deadline_ms

    def await_deadline(
        self, deadline_ms: int, *, now_ms: int, when_due: Callable[[], None]
    ) -> None:
        self._awaited_ms = deadline_ms
        self._timer.set(deadline_ms, now_ms=now_ms, when_due=when_due)

    def forget_deadline(self) -> None:
        self._awaited_ms = None
        self._timer.cancel()
