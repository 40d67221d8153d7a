"""A map that lives in the log: the broker's own state, durable and replayable like any topic.

Each change is a record with a key and a value (a null value removes the key), so the newest
record of each key is the state. When most of the log is history, the whole state is written once
more at its end and everything before that is deleted: a crash at any point leaves either the
old records or the new ones in front, and replaying both gives the same map.
"""

from collections.abc import Callable, Iterable, Iterator

from millstream.base.record import Record
from millstream.log.log_directory import LogDirectory, Partition
from millstream.log.partition_log import Appended, PartitionLog
from millstream.log.record_batch import decode_records, encode_batch, read_header

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
        for record in self._records():
            self._apply(record)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._values.items())

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def put(self, changes: Iterable[tuple[bytes, bytes | None]], *, now_ms: int) -> Appended:
        """Append all changes in one batch: after a crash all of them are there, or none."""
        records = [Record(key=key, value=value, timestamp_ms=now_ms) for key, value in changes]
        appended = self.log.append(memoryview(encode_batch(records)), now_ms=now_ms)
        for record in records:
            self._apply(record)
        return appended

    def _apply(self, record: Record) -> None:
        key = record.key or b""
        old = self._values.pop(key, None)
        if old is not None:
            self._state_bytes -= len(key) + len(old)
        if record.value is not None:
            self._values[key] = record.value
            self._state_bytes += len(key) + len(record.value)

    def _records(self) -> Iterator[Record]:
        offset = self.log.start_offset
        while offset < self.log.high_watermark:
            span = self.log.read(offset, bytes_max=READ_CHUNK_BYTES)
            position = 0
            while position < len(span):
                batch = span[position : position + read_header(span, position).size_bytes]
                for record in decode_records(batch):
                    if record.offset >= offset:
                        yield record
                offset = read_header(batch).last_offset + 1
                position += len(batch)

    @property
    def must_rewrite(self) -> bool:
        size_bytes = self.log.size_bytes
        return size_bytes > max(REWRITE_BYTES_MIN, REWRITE_RATIO * self._state_bytes)

    def rewrite(self, *, now_ms: int) -> None:
        """Write the whole state once more and delete all that came before."""
        self.log.roll(now_ms=now_ms)
        start = self.log.end_offset
        for chunk in _chunks(self._values.items(), lambda pair: len(pair[0]) + len(pair[1])):
            records = [Record(key=key, value=value, timestamp_ms=now_ms) for key, value in chunk]
            self.log.append(memoryview(encode_batch(records)), now_ms=now_ms)
        self.log.sync(now_ms=now_ms)
        self._directory.delete_records(self._partition, start)


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
