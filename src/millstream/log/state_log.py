"""A map that lives in the log: the broker's own state, durable and replayable like any topic.

Each change is a record with a key and a value (a null value removes the key), so the newest
record of each key is the state. Changes made in a transaction count from its commit marker on.
When most of the log is history, the whole state is written once more at its end and everything
before that is deleted: a crash at any point leaves either the old records or the new ones in
front, and replaying both gives the same map.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.base.record import Record
from millstream.log.log_directory import LogDirectory, Partition
from millstream.log.partition_log import Appended, PartitionLog
from millstream.log.record_batch import (
    TRANSACTIONAL,
    Marker,
    decode_records,
    encode_batch,
    read_header,
    read_marker,
)

READ_CHUNK_BYTES = 4 << 20
# A rewrite is worth it when the log is many times the state it holds, and not tiny.
REWRITE_RATIO = 8
REWRITE_BYTES_MIN = 8 << 20
# One batch of a rewrite; stays below any topic's max.message.bytes.
REWRITE_BATCH_BYTES = 256 << 10


@dataclass(slots=True)
class _Pending:
    """The changes of one open transaction."""

    producer_epoch: int
    records: list[Record]


class StateLog:
    """The newest value of every key in one partition. Owned by the loop that owns the log."""

    def __init__(self, directory: LogDirectory, partition: Partition) -> None:
        self._directory = directory
        self._partition = partition
        self.log: PartitionLog = directory.logs[partition]
        self._values: dict[bytes, bytes] = {}
        self._state_bytes = 0
        # The changes of open transactions, by producer id.
        self._pending: dict[int, _Pending] = {}
        for batch in batches_of(self.log):
            self._replay(batch)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._values.items())

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    @property
    def pending(self) -> Mapping[int, Sequence[Record]]:
        return {producer_id: one.records for producer_id, one in self._pending.items()}

    def put(self, changes: Iterable[tuple[bytes, bytes | None]], *, now_ms: int) -> Appended:
        """Append all changes in one batch: after a crash all of them are there, or none."""
        records = _records(changes, now_ms)
        appended = self.log.append(memoryview(encode_batch(records)), now_ms=now_ms)
        for record in records:
            self._apply(record)
        return appended

    def put_in_transaction(
        self,
        changes: Iterable[tuple[bytes, bytes | None]],
        *,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
    ) -> Appended:
        """The same, for changes that count once the producer's transaction is committed."""
        records = _records(changes, now_ms)
        appended = self._append_pending(producer_id, _Pending(producer_epoch, records), now_ms)
        self._pend(producer_id, producer_epoch, records)
        return appended

    def _append_pending(self, producer_id: int, pending: "_Pending", now_ms: int) -> Appended:
        batch = encode_batch(
            pending.records,
            producer_id=producer_id,
            producer_epoch=pending.producer_epoch,
            attributes=TRANSACTIONAL,
        )
        return self.log.append_own(memoryview(batch), now_ms=now_ms)

    def _pend(self, producer_id: int, producer_epoch: int, records: list[Record]) -> None:
        pending = self._pending.setdefault(producer_id, _Pending(producer_epoch, []))
        pending.producer_epoch = producer_epoch
        pending.records += records

    def end_transaction(
        self, marker: Marker, *, producer_id: int, producer_epoch: int, now_ms: int
    ) -> Appended:
        """Let the changes of a transaction count from now on, or never."""
        appended = self.log.append_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
        )
        self._end(producer_id, is_commit=marker.is_commit)
        return appended

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        ended = self._pending.pop(producer_id, None)
        if ended is not None and is_commit:
            for record in ended.records:
                self._apply(record)

    def _apply(self, record: Record) -> None:
        key = record.key or b""
        old = self._values.pop(key, None)
        if old is not None:
            self._state_bytes -= len(key) + len(old)
        if record.value is not None:
            self._values[key] = record.value
            self._state_bytes += len(key) + len(record.value)

    def _replay(self, batch: memoryview) -> None:
        header = read_header(batch)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self._end(header.producer_id, is_commit=marker.is_commit)
            return
        records = [one for one in decode_records(batch) if one.offset >= self.log.start_offset]
        if header.is_transactional:
            self._pend(header.producer_id, header.producer_epoch, records)
        else:
            for record in records:
                self._apply(record)

    @property
    def must_rewrite(self) -> bool:
        size_bytes = self.log.size_bytes
        return size_bytes > max(REWRITE_BYTES_MIN, REWRITE_RATIO * self._state_bytes)

    def rewrite(self, *, now_ms: int) -> None:
        """Write the whole state once more, and what is pending, and delete all that came before.

        A crash may leave what is pending twice: it is applied twice then, with the same outcome.
        """
        self.log.roll(now_ms=now_ms)
        start = self.log.end_offset
        for chunk in _chunks(self._values.items(), lambda pair: len(pair[0]) + len(pair[1])):
            records = _records(chunk, now_ms)
            self.log.append(memoryview(encode_batch(records)), now_ms=now_ms)
        for producer_id, pending in self._pending.items():
            self._append_pending(producer_id, pending, now_ms)
        self.log.sync(now_ms=now_ms)
        self._directory.delete_records(self._partition, start)


def batches_of(log: PartitionLog) -> Iterator[memoryview]:
    """Every batch that is visible, from the start on."""
    offset = log.start_offset
    while offset < log.high_watermark:
        span = log.read(offset, bytes_max=READ_CHUNK_BYTES)
        position = 0
        while position < len(span):
            header = read_header(span, position)
            yield span[position : position + header.size_bytes]
            offset = header.last_offset + 1
            position += header.size_bytes


def _records(changes: Iterable[tuple[bytes, bytes | None]], now_ms: int) -> list[Record]:
    return [Record(key=key, value=value, timestamp_ms=now_ms) for key, value in changes]


def _chunks(
    pairs: Iterable[tuple[bytes, bytes]], size_of: Callable[[tuple[bytes, bytes]], int]
) -> Iterator[list[tuple[bytes, bytes]]]:
    chunk: list[tuple[bytes, bytes]] = []
    chunk_bytes = 0
    for pair in pairs:
        chunk.append(pair)
        chunk_bytes += size_of(pair)
        if chunk_bytes >= REWRITE_BATCH_BYTES:
            yield chunk
            chunk, chunk_bytes = [], 0
    if chunk:
        yield chunk
