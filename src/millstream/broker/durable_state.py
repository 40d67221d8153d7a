"""The broker's own state: maps in internal topics, answered for only once they are synced."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence

from millstream.base.disk import DiskFull
from millstream.base.record import Record
from millstream.broker.group_commit import GroupCommit
from millstream.broker.partition import ServedPartition
from millstream.log.config import INT64_MAX, UNLIMITED, LogConfig
from millstream.log.log_directory import LogDirectory, Partition
from millstream.log.partition_log import Appended
from millstream.log.record_batch import Marker
from millstream.log.state_log import StateLog

Change = tuple[bytes, bytes | None]

# Rewritten by its owner when it has grown, never deleted by age or size; always synced.
STATE_LOG_CONFIG = LogConfig(
    segment_bytes=64 << 20,
    segment_ms=INT64_MAX,
    retention_ms=UNLIMITED,
    deletes_old_segments=False,
    message_bytes_max=64 << 20,
)


class DurableState:
    """A StateLog, with the waiting for its sync. Owned by the broker's loop."""

    def __init__(
        self,
        directory: LogDirectory,
        key: Partition,
        commit: GroupCommit,
        *,
        topic_id: bytes,
        now_ms: int,
    ) -> None:
        log = directory.open_partition(key, STATE_LOG_CONFIG, topic_id=topic_id, now_ms=now_ms)
        self.partition = ServedPartition(key, log)
        self._directory = directory
        self._commit = commit
        self._state = StateLog(directory, key)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._state)

    def __contains__(self, key: bytes) -> bool:
        return self._state.get(key) is not None

    def put(self, changes: Sequence[Change], *, now_ms: int) -> "asyncio.Future[None]":
        """Append the changes now; the future is done when they are durable, or failed."""
        return self._when_durable(self._state.put(changes, now_ms=now_ms))

    @property
    def pending(self) -> Mapping[int, Sequence[Record]]:
        """The changes of open transactions, by producer id."""
        return self._state.pending

    def put_in_transaction(
        self, changes: Sequence[Change], *, producer_id: int, producer_epoch: int, now_ms: int
    ) -> "asyncio.Future[None]":
        """The same for changes that count once the producer's transaction is committed."""
        return self._when_durable(
            self._state.put_in_transaction(
                changes, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
            )
        )

    def end_transaction(
        self, marker: Marker, *, producer_id: int, producer_epoch: int, now_ms: int
    ) -> "asyncio.Future[None]":
        return self._when_durable(
            self._state.end_transaction(
                marker, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
            )
        )

    def put_deletion(self, changes: Sequence[Change], *, now_ms: int) -> "asyncio.Future[None]":
        """The same for what frees space: on a full disk it uses the reserve kept for this."""
        try:
            return self.put(changes, now_ms=now_ms)
        except DiskFull:
            self._directory.release_reserve()
            return self.put(changes, now_ms=now_ms)

    def _when_durable(self, appended: Appended) -> "asyncio.Future[None]":
        return self._commit.durable(self.partition, appended)

    def rewrite_if_worth_it(self, *, now_ms: int) -> None:
        """Drop the history of old values. A full disk only delays it."""
        if self._state.must_rewrite and self.partition.log.failure is None:
            try:
                with contextlib.suppress(DiskFull):
                    self._state.rewrite(now_ms=now_ms)
            finally:
                self.partition.settle()
