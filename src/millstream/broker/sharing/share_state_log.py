"""The topic `__share_group_state`: what share groups have done, as snapshots and updates.

Unlike the broker's other state it is no map of newest values: updates add up, so it is replayed
in order (docs/formats/share_group_state.md). When most of it is history, a snapshot of every
partition is written at its end and everything before that is deleted; a crash at any point leaves
records that add up to the same. What the records say is in `share/share_state_records.py`.
"""

import asyncio
from collections.abc import Iterable, Sequence

from millstream.base.disk import DiskFull
from millstream.base.errors import MillstreamError
from millstream.base.record import Record
from millstream.broker.durable_state import STATE_LOG_CONFIG
from millstream.broker.group_commit import GroupCommit
from millstream.broker.partition import ServedPartition
from millstream.broker.share.share_state_records import (
    ShareHistories,
    SharePartitionKey,
    ShareStateRecord,
    StoredShare,
)
from millstream.broker.topics import INTERNAL_TOPIC_IDS, SHARE_STATE_TOPIC
from millstream.log.log_directory import LogDirectory
from millstream.log.record_batch import decode_records, encode_batch
from millstream.log.state_log import REWRITE_BYTES_MIN, batches_of

# One record of a rewrite is a snapshot, at most some ten thousand bytes: so many make a batch.
SNAPSHOTS_PER_BATCH = 100


class ShareStateLog:
    """Appends, and the waiting for their sync. Owned by the broker's loop."""

    def __init__(self, directory: LogDirectory, commit: GroupCommit, *, now_ms: int) -> None:
        key, topic_id = (SHARE_STATE_TOPIC, 0), INTERNAL_TOPIC_IDS[SHARE_STATE_TOPIC]
        log = directory.open_partition(key, STATE_LOG_CONFIG, topic_id=topic_id, now_ms=now_ms)
        self.partition = ServedPartition(key, log)
        self._directory = directory
        self._commit = commit
        # Below this size a rewrite would gain nothing, or has just failed.
        self._rewrite_bytes = 0

    def load(self) -> dict[SharePartitionKey, StoredShare]:
        """What all records add up to."""
        histories = ShareHistories()
        start_offset = self.partition.log.start_offset
        for batch in batches_of(self.partition.log):
            for record in decode_records(batch):
                if record.offset >= start_offset:
                    histories.add(record.key or b"", record.value)
        return histories.replay()

    def put(self, records: Sequence[ShareStateRecord], *, now_ms: int) -> "asyncio.Future[None]":
        """Append them in one batch; the future is done when they are durable, or failed."""
        appended = self.partition.append(memoryview(_batch(records, now_ms)), now_ms=now_ms)
        return self._commit.durable(self.partition, appended)

    def put_deletion(
        self, records: Sequence[ShareStateRecord], *, now_ms: int
    ) -> "asyncio.Future[None]":
        """The same for what frees space: on a full disk it uses the reserve kept for this."""
        try:
            return self.put(records, now_ms=now_ms)
        except DiskFull:
            self._directory.release_reserve()
            return self.put(records, now_ms=now_ms)

    @property
    def must_rewrite(self) -> bool:
        """Whether it is large, and twice what the last rewrite has left."""
        log = self.partition.log
        too_large = max(REWRITE_BYTES_MIN, self._rewrite_bytes)
        return log.failure is None and log.size_bytes > too_large

    def rewrite(self, snapshots: Iterable[ShareStateRecord], *, now_ms: int) -> None:
        """Write a snapshot of every partition, and delete all that came before.

        What a failure leaves adds up to the same, and takes space: it is tried again when as
        much has come as makes a log large.
        """
        log = self.partition.log
        try:
            log.roll(now_ms=now_ms)
            start_offset = log.end_offset
            for records in _chunks([*snapshots]):
                log.append(memoryview(_batch(records, now_ms)), now_ms=now_ms)
            log.sync(now_ms=now_ms)
            self._directory.delete_records(self.partition.key, start_offset)
            self._rewrite_bytes = 2 * log.size_bytes
        except MillstreamError:
            self._rewrite_bytes = log.size_bytes + REWRITE_BYTES_MIN
            raise
        finally:
            self.partition.settle()


def _batch(records: Iterable[ShareStateRecord], now_ms: int) -> bytearray:
    return encode_batch(
        [Record(key=key, value=value, timestamp_ms=now_ms) for key, value in records]
    )


def _chunks(records: Sequence[ShareStateRecord]) -> Iterable[Sequence[ShareStateRecord]]:
    for first in range(0, len(records), SNAPSHOTS_PER_BATCH):
        yield records[first : first + SNAPSHOTS_PER_BATCH]
