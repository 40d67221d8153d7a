"""A clean stop writes what changed since the last one, and nothing is lost if it is cut short."""

from pathlib import Path

import pytest

from millstream.base.disk import RealDisk
from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.log_directory import CLOSED_IN_THREADS_MIN, LogDirectory
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import TRANSACTIONAL, Marker, encode_batch
from tests.support.batches import NOW_MS, batch, read_records, values
from tests.support.simulated_disk import PowerCut, SimulatedDisk, Survival

TOPIC = "orders"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
PRODUCER = 7
# A log that changed: its two indexes, the producers with their name, and once the list of aborted
# transactions with its name.
SYNCS_OF_A_CHANGED_LOG = 6


def open_all(directory: LogDirectory, count: int) -> list[PartitionLog]:
    logs = []
    for number in range(count):
        key = (TOPIC, number)
        logs.append(directory.open_partition(key, CONFIG, topic_id=bytes(16), now_ms=NOW_MS))
    return logs


def append(log: PartitionLog, value: bytes, *, sequence: int) -> None:
    log.append(batch(value, producer_id=PRODUCER, sequence=sequence), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)


def append_aborted(log: PartitionLog, *, sequence: int) -> None:
    records = [Record(value=b"never", timestamp_ms=NOW_MS)]
    content = encode_batch(
        records, producer_id=8, producer_epoch=0, base_sequence=sequence, attributes=TRANSACTIONAL
    )
    log.append(memoryview(content), now_ms=NOW_MS, in_transaction=True)
    log.append_marker(
        Marker(is_commit=False, coordinator_epoch=0), producer_id=8, producer_epoch=0, now_ms=NOW_MS
    )
    log.sync(now_ms=NOW_MS)


def syncs_of_stop(disk: SimulatedDisk, path: Path, count: int, *, changed: int = 0) -> int:
    """Of a broker's life in which so many of its logs got a record."""
    directory = LogDirectory(path, disk=disk)
    for log in open_all(directory, count)[:changed]:
        log.append(batch(b"new"), now_ms=NOW_MS)
        log.sync(now_ms=NOW_MS)
    before = len(disk.syncs)
    assert directory.close(now_ms=NOW_MS)
    return len(disk.syncs) - before


def test_a_stop_syncs_only_what_changed_however_many_logs_there_are(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    few = SimulatedDisk(tmp_path)
    created, of_few = syncs_of_stop(disk, tmp_path, 100), syncs_of_stop(few, tmp_path, 1)
    assert created - of_few == 0, "empty logs cost a sync"
    written = syncs_of_stop(disk, tmp_path, 100, changed=10)
    assert written - syncs_of_stop(few, tmp_path, 1, changed=1) <= 9 * SYNCS_OF_A_CHANGED_LOG
    unchanged = syncs_of_stop(disk, tmp_path, 100)
    assert unchanged == syncs_of_stop(few, tmp_path, 1)
    assert unchanged <= 2, "the mark of the clean stop, and its name"


def test_a_stop_after_a_crash_saves_what_the_recovery_found(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    directory = LogDirectory(tmp_path, disk=disk)
    append(open_all(directory, 3)[0], b"kept", sequence=0)
    directory.abandon()
    crashed = disk.copy()
    assert syncs_of_stop(crashed, tmp_path, 3) > 2
    directory = LogDirectory(tmp_path, disk=crashed)
    assert not directory.must_recover
    [log, *_] = open_all(directory, 3)
    assert log.is_saved
    assert log.append(batch(b"kept", producer_id=PRODUCER, sequence=0), now_ms=NOW_MS).is_duplicate
    directory.abandon()


def test_an_index_that_was_rebuilt_is_saved_at_the_stop(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    directory = LogDirectory(tmp_path, disk=disk)
    [log] = open_all(directory, 1)
    for number in range(20):
        append(log, b"%d" % number * 40, sequence=number)
    assert log.segment_count > 2
    assert directory.close(now_ms=NOW_MS)
    index = tmp_path / f"{TOPIC}-0" / f"{0:020}.index"
    whole = bytes(disk.content(index))
    disk.content(index)[:] = whole[:-3]
    directory = LogDirectory(tmp_path, disk=disk)
    [log] = open_all(directory, 1)
    assert not log.is_saved
    assert directory.close(now_ms=NOW_MS)
    assert bytes(disk.content(index)) == whole


def test_logs_that_are_closed_in_threads_are_as_complete(tmp_path: Path) -> None:
    count = CLOSED_IN_THREADS_MIN + 1
    directory = LogDirectory(tmp_path, disk=RealDisk(open_files_max=10))
    for number, log in enumerate(open_all(directory, count)):
        append(log, b"%d" % number, sequence=0)
    assert directory.close(now_ms=NOW_MS)
    directory = LogDirectory(tmp_path)
    assert not directory.must_recover
    for number, log in enumerate(open_all(directory, count)):
        assert log.is_saved
        assert values(read_records(log)) == [b"%d" % number]
    assert directory.close(now_ms=NOW_MS)


@pytest.mark.parametrize("count", [1, CLOSED_IN_THREADS_MIN])
def test_one_log_that_cannot_be_saved_makes_the_stop_unclean(tmp_path: Path, count: int) -> None:
    disk = SimulatedDisk(tmp_path)
    directory = LogDirectory(tmp_path, disk=disk)
    for log in open_all(directory, count):
        append(log, b"kept", sequence=0)
    disk.fail_syncs(lambda path: path.parent.name == f"{TOPIC}-0")
    assert not directory.close(now_ms=NOW_MS)
    disk.heal()
    directory = LogDirectory(tmp_path, disk=disk)
    assert directory.must_recover
    for log in open_all(directory, count):
        assert values(read_records(log)) == [b"kept"]
    directory.abandon()


def in_use(disk: SimulatedDisk, path: Path) -> LogDirectory:
    """Three logs: one as the last clean stop left it, one with news, one with an aborted one."""
    directory = LogDirectory(path, disk=disk)
    for number, log in enumerate(open_all(directory, 3)):
        append(log, b"%d" % number * 200, sequence=0)
        append_aborted(log, sequence=0)
    assert directory.close(now_ms=NOW_MS)
    directory = LogDirectory(path, disk=disk)
    _, with_news, with_aborted = open_all(directory, 3)
    append(with_news, b"new" * 100, sequence=1)
    append_aborted(with_aborted, sequence=1)
    return directory


def seen_in(directory: LogDirectory) -> list[object]:
    """All that a client can see, and whether the producer's last batches are known."""
    seen: list[object] = []
    for log in directory.logs.values():
        _, aborted = log.read_stable(0, bytes_max=1 << 20, end_offset=log.last_stable_offset)
        seen.append((values(read_records(log)), aborted, log.aborted_in(0, log.end_offset)))
    for (_, number), log in directory.logs.items():
        value, sequence = (b"new" * 100, 1) if number == 1 else (b"%d" % number * 200, 0)
        again = batch(value, producer_id=PRODUCER, sequence=sequence)
        seen.append(log.append(again, now_ms=NOW_MS).is_duplicate)
    return seen


@pytest.mark.parametrize("survival", list(Survival))
def test_a_stop_that_is_cut_short_at_any_step_loses_nothing(
    tmp_path: Path, survival: Survival
) -> None:
    """EVERYTHING is kill -9: what a program has written the system keeps."""
    disk = SimulatedDisk(tmp_path)
    directory = in_use(disk, tmp_path)
    expected = seen_in(directory)
    start = disk.steps
    assert directory.close(now_ms=NOW_MS)
    end = disk.steps
    assert end - start > 10
    for step in range(start, end + 1):
        disk = SimulatedDisk(tmp_path)
        directory = in_use(disk, tmp_path)
        disk.cut_power_at(step)
        try:
            directory.close(now_ms=NOW_MS)
        except PowerCut:
            directory.abandon()
        left = LogDirectory(tmp_path, disk=disk.after_power_cut(survival, seed=step))
        open_all(left, 3)
        assert seen_in(left) == expected, f"cut at step {step}"
        left.abandon()
