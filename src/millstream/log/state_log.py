"""A map that lives in the log: the broker's own state, durable and replayable like any topic.

Each change is a record with a key and a value (a null value removes the key), so the newest
record of each key is the state. Changes made in a transaction count from its commit marker on.
When most of the log is history, the whole state is written once more at its end and everything
before that is deleted: a crash at any point leaves either the old records or the new ones in
front, and replaying both gives the same map.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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


class StateLog:
    """The newest value of every key in one partition. Owned by the loop that owns the log."""

    def __init__(self, directory: LogDirectory, partition: Partition) -> None:
        self._directory = directory
        self._partition = partition
        self.log: PartitionLog = directory.logs[partition]
        self._values: dict[bytes, bytes] = {}
        self._state_bytes = 0
        # The changes of open transactions, by producer id.
        self._pending: dict[int, list[Record]] = {}
        for batch in self._batches():
            self._replay(batch)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._values.items())

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    @property
    def pending(self) -> Mapping[int, Sequence[Record]]:
        return self._pending

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
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            attributes=TRANSACTIONAL,
        )
        appended = self.log.append_own(memoryview(batch), now_ms=now_ms)
        self._pending.setdefault(producer_id, []).extend(records)
        return appended

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
        for record in self._pending.pop(producer_id, ()):
            if is_commit:
                self._apply(record)

    def _apply(self, record: Record) -> None:
        key = record.key or b""
        old = self._values.pop(key, None)
        if old is not None:
            self._state_bytes -= len(key) + len(old)
        if record.value is not None:
            self._values[key] = record.value
            self._state_bytes += len(key) + len(record.value)

    def _batches(self) -> Iterator[memoryview]:
        offset = self.log.start_offset
        while offset < self.log.high_watermark:
            span = self.log.read(offset, bytes_max=READ_CHUNK_BYTES)
            position = 0
            while position < len(span):
                header = read_header(span, position)
                yield span[position : position + header.size_bytes]
                offset = header.last_offset + 1
                position += header.size_bytes

    def _replay(self, batch: memoryview) -> None:
        header = read_header(batch)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self._end(header.producer_id, is_commit=marker.is_commit)
            return
        records = [one for one in decode_records(batch) if one.offset >= self.log.start_offset]
        if header.is_transactional:
            self._pending.setdefault(header.producer_id, []).extend(records)
        else:
            for record in records:
                self._apply(record)

    @property
    def must_rewrite(self) -> bool:
        """Not while a transaction is open: its changes are nowhere but in the history."""
        size_bytes = self.log.size_bytes
        return not self._pending and size_bytes > max(
            REWRITE_BYTES_MIN, REWRITE_RATIO * self._state_bytes
        )

    def rewrite(self, *, now_ms: int) -> None:
        """Write the whole state once more and delete all that came before."""
        self.log.roll(now_ms=now_ms)
        start = self.log.end_offset
        for chunk in _chunks(self._values.items(), lambda pair: len(pair[0]) + len(pair[1])):
            records = _records(chunk, now_ms)
            self.log.append(memoryview(encode_batch(records)), now_ms=now_ms)
        self.log.sync(now_ms=now_ms)
        self._directory.delete_records(self._partition, start)


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
