"""Batches and logs for tests: short ways to make them, and to read everything back."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from millstream.base.disk import Disk
from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Codec,
    check_batch,
    decode_records,
    encode_batch,
)

NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamp_ms: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = 0,
    sequence: int = NO_SEQUENCE,
) -> memoryview:
    """One batch as a producer sends it: a record per value."""
    records = [Record(value=value, timestamp_ms=timestamp_ms) for value in values]
    return memoryview(
        encode_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id != NO_PRODUCER_ID else -1,
            base_sequence=sequence,
        )
    )


def open_log(
    disk: Disk,
    directory: Path,
    config: LogConfig | None = None,
    *,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
    start_offset: int = 0,
    synced_offset: int = 0,
    was_closed_cleanly: bool = False,
) -> PartitionLog:
    """A partition's log without the data directory around it."""
    disk.make_directory(directory)
    disk.sync_directory(directory.parent)
    return PartitionLog(
        disk,
        directory,
        config or LogConfig(),
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        start_offset=start_offset,
        synced_offset=synced_offset,
        was_closed_cleanly=was_closed_cleanly,
    )


def split(span: memoryview) -> Iterator[memoryview]:
    """The batches of what a read returned, each one checked."""
    while span:
        size_bytes = check_batch(span).size_bytes
        yield span[:size_bytes]
        span = span[size_bytes:]


def read_span(span: memoryview) -> list[Record]:
    """The records of what a read returned."""
    return [record for each in split(span) for record in decode_records(each)]


def read_batches(
    log: PartitionLog, offset: int | None = None, *, bytes_max: int = 1 << 20
) -> list[memoryview]:
    """Every visible batch from the one that holds `offset` on."""
    batches: list[memoryview] = []
    offset = log.start_offset if offset is None else offset
    while offset < log.high_watermark:
        span = log.read(offset, bytes_max=bytes_max)
        assert span, f"nothing at {offset}, below {log.high_watermark}"
        batches += split(span)
        offset = check_batch(batches[-1]).last_offset + 1
    return batches


def read_records(
    log: PartitionLog, offset: int | None = None, *, bytes_max: int = 1 << 20
) -> list[Record]:
    """Every visible record from `offset` on."""
    offset = log.start_offset if offset is None else offset
    batches = read_batches(log, offset, bytes_max=bytes_max)
    return [r for each in batches for r in decode_records(each) if r.offset >= offset]


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]
