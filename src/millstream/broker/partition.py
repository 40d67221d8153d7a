"""One partition as the broker serves it: its log, who waits for a sync, who waits for records."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from millstream.base.errors import MillstreamError
from millstream.broker.transactions.transaction import Identity
from millstream.log.log_directory import Partition as PartitionKey
from millstream.log.partition_log import Appended, PartitionLog
from millstream.log.record_batch import Marker

# Called once: with None when the data is durable, with the error when it never will be.
WhenSynced: TypeAlias = Callable[[MillstreamError | None], None]
# Called with the number of bytes that became visible.
Watcher: TypeAlias = Callable[[int], None]


class ServedPartition:
    """Owned by the broker's loop, like everything here."""

    __slots__ = (
        "_seen_offset",
        "_unannounced_bytes",
        "_waiting",
        "is_closed",
        "key",
        "log",
        "received_bytes",
        "received_records",
        "sent_bytes",
        "watchers",
    )

    def __init__(self, key: PartitionKey, log: PartitionLog) -> None:
        self.key = key
        self.log = log
        self.is_closed = False
        self.watchers: set[Watcher] = set()
        self._waiting: deque[tuple[int, WhenSynced]] = deque()
        self._unannounced_bytes = 0
        self._seen_offset = log.high_watermark
        # Since it was opened.
        self.received_records = 0
        self.received_bytes = 0
        self.sent_bytes = 0

    def append(self, batch: memoryview, *, now_ms: int, in_transaction: bool = False) -> Appended:
        appended = self.log.append(batch, now_ms=now_ms, in_transaction=in_transaction)
        self._unannounced_bytes += appended.size_bytes
        if not appended.is_duplicate:
            self.received_records += appended.end_offset - appended.base_offset
            self.received_bytes += appended.size_bytes
        return appended

    def append_marker(self, marker: Marker, *, who: Identity, now_ms: int) -> Appended:
        appended = self.log.append_marker(
            marker, producer_id=who.producer_id, producer_epoch=who.epoch, now_ms=now_ms
        )
        self._unannounced_bytes += appended.size_bytes
        return appended

    def in_sync(self, node_id: int) -> list[int]:
        """Who takes records: nobody, once a write has failed. Kafka's tools show it."""
        return [] if self.log.failure is not None else [node_id]

    def offline(self, node_id: int) -> list[int]:
        """Who does not have all that it should: with a failed write, or with damaged records."""
        return [node_id] if self.log.failure is not None or self.log.is_damaged else []

    def is_durable(self, end_offset: int) -> bool:
        """Whether an append up to `end_offset` may be acknowledged now."""
        return not self.log.config.syncs_before_ack or self.log.synced_offset >= end_offset

    def when_synced(self, end_offset: int, callback: WhenSynced) -> None:
        """Appends come in order of their offsets, so the waiting ones are sorted."""
        self._waiting.append((end_offset, callback))

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def settle(self) -> None:
        """Tell those who waited: after a sync, a roll or a failure."""
        log = self.log
        while self._waiting and self._waiting[0][0] <= log.synced_offset:
            self._waiting.popleft()[1](None)
        if log.failure is not None:
            while self._waiting:
                self._waiting.popleft()[1](log.failure)
        self.announce()

    def announce(self) -> None:
        """Wake the readers if more is visible than they have seen."""
        if self.log.high_watermark > self._seen_offset:
            self._seen_offset = self.log.high_watermark
            new_bytes, self._unannounced_bytes = self._unannounced_bytes, 0
            for watcher in tuple(self.watchers):
                watcher(new_bytes)

    def close(self, reason: MillstreamError) -> None:
        """The partition is gone: nobody must wait for it any longer."""
        self.is_closed = True
        while self._waiting:
            self._waiting.popleft()[1](reason)
        for watcher in tuple(self.watchers):
            watcher(0)
