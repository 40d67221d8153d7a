"""One partition's log: limits, rolls, visibility, and what it refuses."""

import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.partition_log import (
    BatchTooLarge,
    OffsetOutOfRange,
    PartitionLog,
    TimedOffset,
    TimestampOutOfRange,
)
from millstream.log.record_batch import (
    CHECKED_FROM,
    CRC_AT,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    CorruptBatch,
    InvalidBatch,
    Marker,
    check_batch,
    encode_batch,
    read_header,
)
from millstream.log.segment import ReadWouldBlock, Segment
from millstream.log.time_search import CANDIDATES
from tests.support.batches import NOW_MS, batch, open_log, read_records, values
from tests.support.simulated_disk import SimulatedDisk

ROOT = Path("/disk")
DIRECTORY = ROOT / "orders-0"
SIZE_BYTES = len(batch(b"x"))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(ROOT)


def append(log: PartitionLog, *contents: bytes, now_ms: int = NOW_MS) -> int:
    return log.append(batch(*contents, timestamp_ms=now_ms), now_ms=now_ms).base_offset


def test_an_append_starts_where_the_last_one_ended(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    assert [append(log, b"a", b"b"), append(log, b"c"), append(log, b"d")] == [0, 2, 3]


def test_records_are_visible_once_they_are_synced(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    append(log, b"a")
    assert not log.read(0, bytes_max=1000)
    job = log.sync_job()
    append(log, b"b")
    assert job is not None
    assert log.sync_job() is None, "one at a time"
    job.run()
    log.complete(job, now_ms=NOW_MS)
    assert values(read_records(log)) == [b"a"]
    assert log.has_unsynced


def test_relaxed_records_are_visible_at_once(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(flush_messages=3, flush_ms=100))
    append(log, b"a", b"b")
    assert values(read_records(log)) == [b"a", b"b"]
    assert not log.is_sync_due(now_ms=NOW_MS + 99)
    assert log.is_sync_due(now_ms=NOW_MS + 100)
    append(log, b"c")
    assert log.is_sync_due(now_ms=NOW_MS)


def test_a_sync_is_due_when_the_clock_steps_back(disk: SimulatedDisk) -> None:
    """Until it has caught up again, records would be unsynced for as long as it stepped."""
    log = open_log(disk, DIRECTORY, LogConfig(flush_messages=1000, flush_ms=100))
    assert not log.is_sync_due(now_ms=NOW_MS - 1), "there is nothing to sync"
    append(log, b"a")
    assert not log.is_sync_due(now_ms=NOW_MS)
    assert log.is_sync_due(now_ms=NOW_MS - 1)
    log.sync(now_ms=NOW_MS - 1)
    append(log, b"b")
    assert not log.is_sync_due(now_ms=NOW_MS - 1)


def test_a_job_that_comes_back_after_a_roll_changes_nothing(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    append(log, b"a")
    job = log.sync_job()
    assert job is not None
    append(log, b"b")
    log.roll(now_ms=NOW_MS)
    append(log, b"c")
    job.run()
    log.complete(job, now_ms=NOW_MS)
    assert (log.synced_offset, log.high_watermark) == (2, 2)
    assert values(read_records(log)) == [b"a", b"b"]


def test_a_batch_may_be_as_large_as_the_limit_and_no_larger(disk: SimulatedDisk) -> None:
    append(open_log(disk, DIRECTORY, LogConfig(message_bytes_max=SIZE_BYTES)), b"x")
    log = open_log(disk, DIRECTORY, LogConfig(message_bytes_max=SIZE_BYTES - 1), leader_epoch=1)
    with pytest.raises(BatchTooLarge):
        append(log, b"x")


@pytest.mark.parametrize(
    ("segment_bytes", "segments"), [(2 * SIZE_BYTES, 1), (SIZE_BYTES * 2 - 1, 2)]
)
def test_a_segment_is_as_large_as_its_limit_and_no_larger(
    disk: SimulatedDisk, segment_bytes: int, segments: int
) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(segment_bytes=segment_bytes))
    append(log, b"x")
    append(log, b"y")
    assert log.segment_count == segments


@pytest.mark.parametrize(("age_ms", "segments"), [(999, 1), (1000, 2)])
def test_a_segment_is_rolled_by_age(disk: SimulatedDisk, age_ms: int, segments: int) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(segment_ms=1000))
    append(log, b"x")
    append(log, b"y", now_ms=NOW_MS + age_ms)
    assert log.segment_count == segments


def test_a_segment_is_rolled_when_its_index_is_full(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(segment_index_bytes=16, index_interval_bytes=0))
    for _ in range(4):
        append(log, b"x")
    assert log.segment_count == 2


def test_an_empty_segment_is_not_rolled(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    log.roll(now_ms=NOW_MS)
    assert log.segment_count == 1
    append(log, b"x")
    log.roll(now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    assert log.segment_count == 2


def test_a_read_outside_the_log_is_refused_with_its_range(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, start_offset=5)
    append(log, b"x")
    log.sync(now_ms=NOW_MS)
    for offset in (4, 7):
        with pytest.raises(OffsetOutOfRange, match=r"\[5, 6\)"):
            log.read(offset, bytes_max=100)
    assert not log.read(6, bytes_max=100)


def test_a_read_is_whole_batches_within_its_limit_but_at_least_one(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    for _ in range(4):
        append(log, b"x")
    log.sync(now_ms=NOW_MS)
    for bytes_max, batches in [(0, 1), (SIZE_BYTES, 1), (2 * SIZE_BYTES - 1, 1), (999, 3)]:
        assert len(log.read(1, bytes_max=bytes_max)) == batches * SIZE_BYTES


def test_a_cold_index_is_not_read_by_the_owner(disk: SimulatedDisk) -> None:
    """Where the next bytes are is remembered, so that a reader waits once."""
    log = open_log(disk, DIRECTORY)
    for _ in range(4):
        append(log, b"x")
    log.roll(now_ms=NOW_MS)
    with pytest.raises(ReadWouldBlock):
        log.read(1, bytes_max=1, must_not_block=True)
    assert log.read(0, bytes_max=1, must_not_block=True)
    log.read(1, bytes_max=1)
    assert log.read(2, bytes_max=1, must_not_block=True)


def test_the_broker_stamps_batches_if_it_is_told_to(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(is_log_append_time=True))
    appended = log.append(batch(b"x", timestamp_ms=5), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    assert appended.append_time_ms == NOW_MS
    assert read_records(log)[0].timestamp_ms == NOW_MS
    assert check_batch(log.read(0, bytes_max=1)).is_log_append_time


def test_a_timestamp_may_be_as_far_off_as_the_limit_and_no_farther(disk: SimulatedDisk) -> None:
    config = LogConfig(timestamp_after_max_ms=1000, timestamp_before_max_ms=2000)
    log = open_log(disk, DIRECTORY, config)
    for timestamp_ms in (NOW_MS + 1000, NOW_MS - 2000):
        log.append(batch(b"x", timestamp_ms=timestamp_ms), now_ms=NOW_MS)
    for timestamp_ms in (NOW_MS + 1001, NOW_MS - 2001):
        with pytest.raises(TimestampOutOfRange):
            log.append(batch(b"x", timestamp_ms=timestamp_ms), now_ms=NOW_MS)


def test_what_a_producer_must_not_send_is_refused(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    broken = batch(b"x")
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append(broken, now_ms=NOW_MS)
    two = memoryview(bytearray(batch(b"x")) + bytearray(batch(b"y")))
    with pytest.raises(InvalidBatch, match="exactly one batch"):
        log.append(two, now_ms=NOW_MS)
    assert log.end_offset == 0


def test_every_batch_carries_the_epoch_of_the_owner_that_wrote_it(disk: SimulatedDisk) -> None:
    append(open_log(disk, DIRECTORY, leader_epoch=4), b"x")
    log = open_log(disk, DIRECTORY, leader_epoch=6)
    append(log, b"y")
    log.sync(now_ms=NOW_MS)
    assert [read_header(log.read(n, bytes_max=1)).leader_epoch for n in (0, 1)] == [4, 6]
    assert log.epochs.entries == [(4, 0), (6, 1)]


def test_a_lost_count_of_epochs_does_not_make_them_go_back(disk: SimulatedDisk) -> None:
    append(open_log(disk, DIRECTORY, leader_epoch=4), b"x")
    log = open_log(disk, DIRECTORY, leader_epoch=0)
    append(log, b"y")
    log.sync(now_ms=NOW_MS)
    assert log.leader_epoch == 4
    assert values(read_records(open_log(disk, DIRECTORY, leader_epoch=0))) == [b"x", b"y"]


def test_the_newest_record_is_a_visible_one(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    append(log, b"a", now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    append(log, b"not yet synced", now_ms=NOW_MS + 5)
    assert log.newest() == TimedOffset(0, NOW_MS)
    assert log.first_at_or_after(NOW_MS + 1) is None


def test_the_newest_record_is_not_a_deleted_one(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY)
    append(log, b"a", now_ms=NOW_MS + 9)
    append(log, b"b", now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    log.advance_start(1)
    assert log.newest() == TimedOffset(1, NOW_MS)
    log.advance_start(2)
    assert log.newest() is None


def lying(content: memoryview, max_timestamp: int) -> memoryview:
    """The batch with another largest timestamp in its header than its records have."""
    struct.pack_into(">q", content, MAX_TIMESTAMP_AT, max_timestamp)
    struct.pack_into(">I", content, CRC_AT, crc32c(content[CHECKED_FROM:]))
    return content


@pytest.mark.parametrize("count", [CANDIDATES - 1, CANDIDATES, CANDIDATES + 1, 3 * CANDIDATES])
@pytest.mark.parametrize("liars", [0, 1, CANDIDATES, 3 * CANDIDATES])
@pytest.mark.parametrize("seed", range(3))
def test_the_newest_record_is_found_whatever_is_deleted_or_headers_say(
    disk: SimulatedDisk, count: int, liars: int, seed: int
) -> None:
    random = Random(seed)
    log = open_log(disk, DIRECTORY, LogConfig(segment_bytes=10 * SIZE_BYTES))
    for number in range(count):
        sent = batch(b"x", b"y", timestamp_ms=NOW_MS + random.randint(0, 9))
        if number < liars:
            lying(sent, NOW_MS + random.randint(9, 20))
        log.append(sent, now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    for start in range(log.end_offset):
        log.advance_start(start)
        times = {record.offset: record.timestamp_ms for record in read_records(log)}
        newest = max(times, key=lambda offset: (times[offset], -offset))
        assert log.newest() == TimedOffset(newest, times[newest]), start


def test_a_start_beyond_the_end_of_the_log_is_where_it_goes_on(disk: SimulatedDisk) -> None:
    append(open_log(disk, DIRECTORY), b"x")
    log = open_log(disk, DIRECTORY, leader_epoch=1, start_offset=10)
    assert (log.start_offset, log.end_offset) == (10, 10)
    assert append(log, b"y") == 10
    log.sync(now_ms=NOW_MS)
    assert values(read_records(log)) == [b"y"]


def test_what_was_aborted_is_known_although_its_segment_is_dropped_meanwhile(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read in a thread may have the bytes while retention takes the file and its index."""
    log = open_log(disk, DIRECTORY)
    data = encode_batch(
        [Record(value=b"aborted", timestamp_ms=NOW_MS)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    log.append(memoryview(data), now_ms=NOW_MS, in_transaction=True)
    log.append_marker(Marker(False, 0), producer_id=7, producer_epoch=0, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    read = Segment.read

    def read_and_drop(segment: Segment, offset: int, **limits: Any) -> memoryview:
        span = read(segment, offset, **limits)
        log.advance_start(2)
        return span

    monkeypatch.setattr(Segment, "read", read_and_drop)
    span, aborted = log.read_stable(0, bytes_max=1 << 20, end_offset=2)
    assert span
    assert [one.producer_id for one in aborted] == [7]
