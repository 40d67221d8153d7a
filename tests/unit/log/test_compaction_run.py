"""Cleaning a log: what goes, what stays, and when."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.log.compaction_filter import horizon_of
from millstream.log.compaction_run import CleanedSegment, CompactionDone, CompactionRun, Uncleanable
from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog
from millstream.log.producer_state import OutOfOrderSequence
from millstream.log.record_batch import (
    TRANSACTIONAL,
    BatchHeader,
    InvalidBatch,
    Marker,
    read_header,
    read_marker,
)
from millstream.log.transaction_index import load_aborted
from tests.support.batches import NOW_MS, batch, open_log, read_batches, read_records, values
from tests.support.compaction import compact, job_for, keyed, swap_in
from tests.support.simulated_disk import SimulatedDisk

ROOT = Path("/disk")
DIRECTORY = ROOT / "orders-0"
DAY_MS = 86_400_000
CONFIG = LogConfig(is_compacted=True, deletes_old_segments=False, index_interval_bytes=50)
PRODUCER_ID = 9


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(ROOT)


@pytest.fixture
def log(disk: SimulatedDisk) -> PartitionLog:
    return open_log(disk, DIRECTORY, CONFIG)


def put(log: PartitionLog, *pairs: tuple[bytes, bytes | None], now_ms: int = NOW_MS) -> None:
    log.append(keyed(*pairs, timestamp_ms=now_ms), now_ms=now_ms)


def roll(log: PartitionLog) -> None:
    """Close the segment, and begin another that is not empty either."""
    log.roll(now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [read_header(each) for each in read_batches(log)]


def offsets(log: PartitionLog) -> list[int]:
    return [one.offset for one in read_records(log)]


def put_in_transaction(log: PartitionLog, *keys: bytes, sequence: int = 0) -> None:
    content = keyed(
        *((key, b"in a transaction") for key in keys),
        attributes=TRANSACTIONAL,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )
    log.append(content, now_ms=NOW_MS, in_transaction=True)


def end_transaction(log: PartitionLog, *, is_commit: bool) -> None:
    marker = Marker(is_commit, 0)
    log.append_marker(marker, producer_id=PRODUCER_ID, producer_epoch=0, now_ms=NOW_MS)


# --- values -----------------------------------------------------------------------------------


def test_only_the_last_value_of_a_key_stays(disk: SimulatedDisk, log: PartitionLog) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", b"3"))
    put(log, (b"c", b"4"), (b"b", b"5"))
    roll(log)
    compact(disk, log)
    assert offsets(log) == [2, 3, 4]
    assert values(read_records(log)) == [b"3", b"4", b"5"]


def test_the_growing_segment_is_not_touched_and_removes_nothing(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"), (b"a", b"3"))
    log.sync(now_ms=NOW_MS)
    compact(disk, log)
    assert offsets(log) == [0, 1, 2]


def test_a_record_without_a_key_goes_and_a_new_one_is_refused(disk: SimulatedDisk) -> None:
    plain = open_log(disk, DIRECTORY, LogConfig())
    plain.append(batch(b"no key"), now_ms=NOW_MS)
    plain.append(keyed((b"a", b"1")), now_ms=NOW_MS)
    plain.config = CONFIG
    roll(plain)
    compact(disk, plain)
    assert values(read_records(plain)) == [b"1"]
    with pytest.raises(InvalidBatch, match="without a key"):
        plain.append(batch(b"no key"), now_ms=NOW_MS)


def test_an_offset_that_is_gone_leads_to_the_next_one(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    for number in range(20):
        put(log, (b"%d" % (number % 3), b"%d" % number))
    roll(log)
    compact(disk, log)
    assert offsets(log) == [17, 18, 19]
    for offset in range(20):
        found = [one.offset for one in read_records(log, offset)]
        assert found == [one for one in (17, 18, 19) if one >= offset]


def test_the_last_batch_of_the_cleaned_range_stays_if_need_be_empty(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", b"1"))
    put_in_transaction(log, b"a", b"b")
    end_transaction(log, is_commit=False)
    put_in_transaction(log, b"c", sequence=2)
    roll(log)
    end_transaction(log, is_commit=False)
    roll(log)
    compact(disk, log)
    assert log.closed_segments[0].end_offset == log.end_offset
    assert headers(log)[-1].last_offset + 1 == log.end_offset
    assert values(read_records(log))[0] == b"1"


def test_a_read_passes_over_segments_without_records(disk: SimulatedDisk) -> None:
    """librdkafka takes an answer without any for one that is too small for a record."""
    log = open_log(disk, DIRECTORY, LogConfig(is_compacted=True, segment_bytes=160))
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    roll(log)
    compact(disk, log, keys_max=1)
    compact(disk, log)
    put(log, (b"z", b"new"))
    log.sync(now_ms=NOW_MS)
    first = read_header(log.read(0, bytes_max=1_000))
    assert first.record_count == 1
    assert first.base_offset == offsets(log)[0]


def test_where_nothing_but_empty_batches_is_left_they_are_served(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", None))
    roll(log)
    compact(disk, log)
    compact(disk, log, now_ms=NOW_MS + 2 * DAY_MS)
    assert offsets(log) == []
    header = read_header(log.read(0, bytes_max=1_000))
    assert (header.record_count, header.last_offset) == (0, 0)


def test_an_unchanged_segment_is_not_written_again(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(is_compacted=True, segment_bytes=100))
    put(log, (b"a", b"1"))
    put(log, (b"b", b"2"))
    put(log, (b"c", b"3"))
    roll(log)
    before = [segment.log for segment in log.closed_segments]
    cleaned = compact(disk, log)
    assert cleaned is not None
    assert cleaned.segments == []
    assert [segment.log for segment in log.closed_segments] == before


def test_what_is_left_of_neighbours_becomes_one_segment(disk: SimulatedDisk) -> None:
    config = LogConfig(is_compacted=True, segment_bytes=400, index_interval_bytes=50)
    log = open_log(disk, DIRECTORY, config)
    for number in range(40):
        put(log, (b"%d" % (number % 8), b"%d" % number))
    roll(log)
    assert len(log.closed_segments) == 8
    compact(disk, log)
    assert len(log.closed_segments) <= 3
    assert all(segment.size_bytes <= 400 for segment in log.closed_segments)
    assert offsets(log) == list(range(32, 40))


def test_keys_that_do_not_fit_in_memory_take_several_cleanings(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    for number in range(30):
        put(log, (b"%d" % (number % 10), b"%d" % number))
    roll(log)
    cleaned_offset = 0
    for _ in range(20):
        cleaned = compact(disk, log, cleaned_offset=cleaned_offset, keys_max=3)
        if cleaned is None:
            break
        assert cleaned.offset > cleaned_offset
        assert cleaned.done.counts.keys <= 3
        cleaned_offset = cleaned.offset
    assert offsets(log) == list(range(20, 30))


def test_a_reader_that_holds_an_old_segment_goes_on(disk: SimulatedDisk, log: PartitionLog) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    held = log.closed_segments[0]
    compact(disk, log)
    assert offsets(log) == [1]
    assert len(held.read(0, bytes_max=1_000)) == held.size_bytes


def test_a_producer_goes_on_with_its_sequence_although_nothing_of_it_is_left(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    def send(sequence: int, key: bytes) -> int:
        content = keyed(
            (key, b"x"), producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence
        )
        return log.append(content, now_ms=NOW_MS).base_offset

    assert [send(0, b"a"), send(1, b"b")] == [0, 1]
    put(log, (b"a", b"new"), (b"b", b"new"))
    roll(log)
    compact(disk, log)
    assert offsets(log) == [2, 3]
    for name in disk.names(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(DIRECTORY / name)
    log = open_log(disk, DIRECTORY, CONFIG)
    assert send(1, b"b") == 1, "recognised as a repetition"
    assert send(2, b"c") == 4


# --- tombstones -------------------------------------------------------------------------------


def test_a_tombstone_stays_for_delete_retention_from_its_first_cleaning_on(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None))
    roll(log)
    compact(disk, log, now_ms=NOW_MS + 5)
    assert offsets(log) == [1, 2]
    assert horizon_of(headers(log)[-1]) == NOW_MS + 5 + DAY_MS
    for now_ms, left in ((NOW_MS + 4 + DAY_MS, [1, 2]), (NOW_MS + 5 + DAY_MS, [1])):
        put(log, (b"other", b"%d" % now_ms))
        roll(log)
        compact(disk, log, now_ms=now_ms)
        assert [offset for offset in offsets(log) if offset < 3] == left


def test_a_new_value_after_a_tombstone_removes_it_at_once(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", None))
    put(log, (b"a", b"again"))
    roll(log)
    compact(disk, log)
    assert values(read_records(log)) == [b"again"]


# --- transactions -----------------------------------------------------------------------------


def test_what_was_aborted_goes_and_replaces_nothing(disk: SimulatedDisk, log: PartitionLog) -> None:
    put(log, (b"a", b"1"))
    put_in_transaction(log, b"a", b"b")
    end_transaction(log, is_commit=False)
    put(log, (b"z", b"2"))
    roll(log)
    compact(disk, log)
    assert read_records(log)[0].value == b"1"
    assert [one.offset for one in read_records(log)] == [0, 3, 4]  # 3 is the marker
    assert log.aborted_in(0, 5) == load_aborted(disk, log.closed_segments[0].log.path)
    assert len(log.aborted_in(0, 5)) == 1


def test_nothing_of_an_open_transaction_or_behind_it_is_touched(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    put_in_transaction(log, b"a")
    put(log, (b"a", b"3"))
    roll(log)
    compact(disk, log)
    assert offsets(log) == [1, 2, 3]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_goes_a_while_after_the_last_record_of_its_transaction(
    disk: SimulatedDisk, log: PartitionLog, is_commit: bool
) -> None:
    put_in_transaction(log, b"a")
    end_transaction(log, is_commit=is_commit)
    put(log, (b"a", b"new"))
    put_in_transaction(log, b"later", sequence=1)  # so that the first batch is not the last
    end_transaction(log, is_commit=True)
    roll(log)
    now_ms = NOW_MS
    seen = []
    for _ in range(4):
        compact(disk, log, now_ms=now_ms)
        seen.append(sorted(marker_offsets(log)))
        now_ms += DAY_MS
    assert seen == [[1, 4], [1, 4], [4], [4]]


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_of_many_transactions_only_the_last_data_batch_of_the_producer_stays(
    disk: SimulatedDisk, log: PartitionLog, is_restarted: bool
) -> None:
    for sequence in range(20):
        put_in_transaction(log, b"a", sequence=sequence)
        end_transaction(log, is_commit=True)
    put(log, (b"a", b"new"))
    roll(log)
    if is_restarted:
        assert log.close(now_ms=NOW_MS)
        log = open_log(disk, DIRECTORY, CONFIG, was_closed_cleanly=True)
    for days in range(4):
        compact(disk, log, now_ms=NOW_MS + days * DAY_MS)
    left = [header.base_offset for header in headers(log)]
    assert left == [38, 39, 40], "its last data and marker, and what replaced it"
    for name in disk.names(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(DIRECTORY / name)
    log = open_log(disk, DIRECTORY, CONFIG)
    with pytest.raises(OutOfOrderSequence):
        put_in_transaction(log, b"a", sequence=60)


def test_of_the_markers_of_a_producer_without_data_only_the_last_stays(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    """The broker's own batches in a transaction have no sequence: so it is with offsets."""
    for _ in range(5):
        content = keyed(
            (b"a", b"x"), producer_id=PRODUCER_ID, producer_epoch=0, attributes=TRANSACTIONAL
        )
        log.append_own(content, now_ms=NOW_MS)
        end_transaction(log, is_commit=True)
    put(log, (b"a", b"new"))
    roll(log)
    for days in range(4):
        compact(disk, log, now_ms=NOW_MS + days * DAY_MS)
    assert [header.base_offset for header in headers(log)] == [9, 10]


def marker_offsets(log: PartitionLog) -> Iterator[int]:
    for each in read_batches(log):
        header = read_header(each)
        if header.is_control and read_marker(each) is not None:
            yield header.base_offset


# --- what cannot be cleaned -------------------------------------------------------------------


def test_a_damaged_segment_is_named_and_left_as_it_is(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    path = log.closed_segments[0].log.path
    disk.content(path)[-1] ^= 1
    before = bytes(disk.content(path))
    with pytest.raises(Uncleanable, match=r"00000000000000000000\.log: cannot be compacted, byte"):
        compact(disk, log)
    assert disk.content(path) == before


def test_a_result_for_segments_that_are_gone_in_part_is_not_swapped_in(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, DIRECTORY, LogConfig(is_compacted=True, segment_bytes=150))
    for number in range(6):
        put(log, (b"a", b"%d" % number))
    roll(log)
    job = job_for(log)
    assert job is not None
    first = next(iter(CompactionRun(disk, job).run()))
    assert isinstance(first, CleanedSegment)
    log.advance_start(log.closed_segments[1].base_offset)
    assert log.begin_swap(first.base_offset, first.end_offset, now_ms=NOW_MS) is None


def test_records_deleted_during_a_swap_go_after_it(disk: SimulatedDisk, log: PartitionLog) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    put(log, (b"b", b"3"))
    log.sync(now_ms=NOW_MS)
    job = job_for(log)
    assert job is not None
    first, done = CompactionRun(disk, job).run()
    assert isinstance(first, CleanedSegment)
    assert isinstance(done, CompactionDone)
    swap = log.begin_swap(first.base_offset, first.end_offset, now_ms=NOW_MS)
    assert swap is not None
    log.advance_start(2)
    assert log.apply_retention(now_ms=NOW_MS) == 0
    swap.run()
    log.complete_swap(swap)
    assert offsets(log) == [2]
    assert log.segment_count == 1
    assert not [name for name in disk.names(DIRECTORY) if name.startswith("0" * 20 + ".log")]


def test_a_swap_is_one_step_for_readers(disk: SimulatedDisk, log: PartitionLog) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    job = job_for(log)
    assert job is not None
    first = next(iter(CompactionRun(disk, job).run()))
    assert isinstance(first, CleanedSegment)
    assert offsets(log) == [0, 1], "cleaned, and not swapped in"
    swap_in(log, first)
    assert offsets(log) == [1]
