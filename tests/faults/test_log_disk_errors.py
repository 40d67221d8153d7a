"""Disks that refuse: a sync that fails, and no space left, at every call that can meet it.

A failed sync is never tried again: the kernel may have dropped what it could not write, and a
second one would succeed without it. A full disk is no such thing: nothing of the refused write is
kept, and once there is space again the log goes on without being opened anew.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.base.disk import DiskFailed, DiskFull
from millstream.log.config import LogConfig
from millstream.log.log_directory import LogDirectory
from millstream.log.partition_log import LogReadOnly, PartitionLog
from millstream.log.state_log import StateLog
from tests.support.batches import NOW_MS, batch, open_log, read_records, values
from tests.support.simulated_disk import SimulatedDisk, Survival

ROOT = Path("/disk")
DIRECTORY = ROOT / "orders-0"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
ORDERS = ("orders", 0)


def content(number: int) -> bytes:
    return b"%03d" % number + bytes(60)


def append(log: PartitionLog, number: int) -> None:
    log.append(batch(content(number), producer_id=5, sequence=number), now_ms=NOW_MS)


def is_log_file(path: Path) -> bool:
    return path.suffix == ".log"


# --- a sync that fails --------------------------------------------------------------------------


def failed_log() -> tuple[SimulatedDisk, PartitionLog]:
    """Two records are synced; the sync of the third fails."""
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY)
    append(log, 0)
    append(log, 1)
    log.sync(now_ms=NOW_MS)
    append(log, 2)
    disk.fail_syncs(is_log_file)
    with pytest.raises(LogReadOnly):
        log.sync(now_ms=NOW_MS)
    return disk, log


def test_a_failed_sync_makes_the_log_read_only_for_good() -> None:
    disk, log = failed_log()
    disk.heal()
    syncs = len(disk.syncs)
    for _ in range(3):
        with pytest.raises(LogReadOnly):
            append(log, 3)
        log.sync(now_ms=NOW_MS)
        assert log.sync_job() is None
        assert log.apply_retention(now_ms=NOW_MS + (1 << 40)) == 0
    assert log.close(now_ms=NOW_MS) is False
    assert len(disk.syncs) == syncs


def test_what_was_visible_before_a_failed_sync_is_still_served() -> None:
    _, log = failed_log()
    assert (log.synced_offset, log.high_watermark, log.end_offset) == (2, 2, 3)
    assert values(read_records(log)) == [content(0), content(1)]
    assert not log.read(2, bytes_max=1000)


def test_after_a_failed_sync_and_a_restart_nothing_synced_is_missing() -> None:
    disk, _ = failed_log()
    for survival in Survival:
        log = open_log(disk.after_power_cut(survival), DIRECTORY, leader_epoch=1)
        assert values(read_records(log))[:2] == [content(0), content(1)]
        append(log, log.end_offset)


def test_a_sync_job_that_fails_in_a_thread_is_handed_back_as_a_failure() -> None:
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY)
    append(log, 0)
    job = log.sync_job()
    assert job is not None
    disk.fail_syncs(is_log_file)
    with pytest.raises(DiskFailed) as caught:
        job.run()
    log.fail(caught.value)
    assert log.failure is not None
    assert "orders-0" in str(log.failure)
    assert log.synced_offset == 0
    with pytest.raises(LogReadOnly):
        append(log, 1)


def paths_synced_by_a_roll() -> Iterator[Path]:
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY)
    append(log, 0)
    before = len(disk.syncs)
    log.roll(now_ms=NOW_MS)
    return iter(dict.fromkeys(disk.syncs[before:]))


def test_any_sync_of_a_roll_that_fails_makes_the_log_read_only() -> None:
    for failing in paths_synced_by_a_roll():
        disk = SimulatedDisk(ROOT)
        log = open_log(disk, DIRECTORY)
        append(log, 0)
        log.sync(now_ms=NOW_MS)
        disk.fail_syncs(lambda path, failing=failing: path == failing)  # type: ignore[misc]
        with pytest.raises(LogReadOnly):
            log.roll(now_ms=NOW_MS)
        with pytest.raises(LogReadOnly):
            append(log, 1)
        assert values(read_records(log)) == [content(0)]
        log = open_log(disk.after_power_cut(Survival.NOTHING), DIRECTORY, leader_epoch=1)
        assert values(read_records(log)) == [content(0)]


def test_a_failed_sync_of_the_epochs_makes_the_log_read_only() -> None:
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY)
    disk.fail_syncs(lambda path: path.name.startswith("leader-epoch"))
    with pytest.raises(LogReadOnly):
        append(log, 0)
    disk.heal()
    with pytest.raises(LogReadOnly):
        append(log, 0)
    assert log.end_offset == 0


# --- no space left ------------------------------------------------------------------------------


def use(log: PartitionLog) -> Iterator[None]:
    """Steps that need space: appends of which some roll, saving what a roll saves, a close."""
    for number in range(12):
        append(log, number)
        yield
        if number % 5 == 4:
            log.sync(now_ms=NOW_MS)
            yield


def count_steps() -> int:
    disk = SimulatedDisk(ROOT)
    for _ in use(open_log(disk, DIRECTORY, CONFIG)):
        pass
    return disk.steps


def append_all(log: PartitionLog, disk: SimulatedDisk) -> int:
    """Append twelve records; after a refusal make space and go on. How often it was refused."""
    refusals = 0
    for number in range(12):
        end_offset = log.end_offset
        try:
            append(log, number)
        except DiskFull:
            refusals += 1
            assert log.end_offset == end_offset
            check_visible(log)
            disk.heal()
            append(log, number)
        assert log.end_offset == number + 1
    return refusals


def check_visible(log: PartitionLog) -> None:
    """What was visible before the disk was full is served while it is."""
    assert values(read_records(log)) == [content(n) for n in range(log.high_watermark)]


def test_a_disk_full_at_any_step_refuses_and_heals_without_a_gap() -> None:
    first = SimulatedDisk(ROOT)
    open_log(first, DIRECTORY, CONFIG)
    refusals = 0
    for step in range(first.steps + 1, count_steps() + 1):
        disk = SimulatedDisk(ROOT)
        log = open_log(disk, DIRECTORY, CONFIG)
        disk.fill_at(step)
        refusals += append_all(log, disk)
        disk.heal()
        log.sync(now_ms=NOW_MS)
        assert values(read_records(log)) == [content(n) for n in range(12)]
        check_retry(log)
        for survival in Survival:
            left = disk.after_power_cut(survival, seed=step)
            again = open_log(left, DIRECTORY, CONFIG, leader_epoch=1)
            assert values(read_records(again)) == [content(n) for n in range(12)]
            assert again.epochs.entries == [(0, 0)]
            check_retry(again)
    assert refusals > 30


def check_retry(log: PartitionLog) -> None:
    appended = log.append(batch(content(11), producer_id=5, sequence=11), now_ms=NOW_MS)
    assert (appended.base_offset, appended.is_duplicate) == (11, True)


def test_a_disk_that_stays_full_refuses_every_append_and_serves_every_read() -> None:
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY, CONFIG)
    for number in range(7):
        append(log, number)
    log.sync(now_ms=NOW_MS)
    disk.fill_at(0)
    for _ in range(20):
        with pytest.raises(DiskFull):
            append(log, 7)
        check_visible(log)
    disk.heal()
    append(log, 7)
    assert log.end_offset == 8


def test_a_full_disk_can_still_be_freed_by_retention() -> None:
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY, CONFIG)
    for number in range(12):
        append(log, number)
    segments = log.segment_count
    disk.fill_at(0)
    assert log.apply_retention(now_ms=NOW_MS + CONFIG.retention_ms + 1) == segments - 1
    assert log.start_offset > 0
    disk.heal()
    append(log, 12)


def test_a_full_disk_at_close_leaves_a_log_that_is_recovered() -> None:
    first = SimulatedDisk(ROOT)
    fill = open_log(first, DIRECTORY)
    append(fill, 0)
    for step in range(first.steps + 1, first.steps + 40):
        disk = SimulatedDisk(ROOT)
        log = open_log(disk, DIRECTORY)
        append(log, 0)
        disk.fill_at(step)
        log.close(now_ms=NOW_MS)
        disk.heal()
        assert values(read_records(open_log(disk, DIRECTORY, leader_epoch=1))) == [content(0)]


# --- no space left in the data directory --------------------------------------------------------


def open_directory(path: Path, disk: SimulatedDisk) -> LogDirectory:
    directory = LogDirectory(path, disk=disk)
    directory.open_partition(ORDERS, CONFIG, topic_id=bytes(16), now_ms=NOW_MS)
    return directory


def use_directory(directory: LogDirectory) -> None:
    log = directory.logs[ORDERS]
    start = log.end_offset
    append(log, start)
    append(log, start + 1)
    log.sync(now_ms=NOW_MS)
    directory.delete_records(ORDERS, start + 1)
    directory.save_recovery_points()


def test_a_disk_full_at_any_checkpoint_heals_and_forgets_nothing(lock_path: Path) -> None:
    for more in range(60):
        disk = SimulatedDisk(lock_path)
        directory = open_directory(lock_path, disk)
        try:
            use_directory(directory)
            log = directory.logs[ORDERS]
            disk.fill_at(disk.steps + more)
            try:
                use_directory(directory)
            except DiskFull:
                disk.heal()
                start_offset = log.start_offset
                use_directory(directory)
                assert log.start_offset > start_offset
        finally:
            directory.abandon()
        again = open_directory(lock_path, disk.after_power_cut(Survival.NOTHING))
        again.abandon()
        assert again.logs[ORDERS].start_offset == log.start_offset
        assert again.logs[ORDERS].end_offset == log.end_offset


def test_a_directory_that_cannot_be_opened_on_a_full_disk_gives_its_lock_back(
    lock_path: Path,
) -> None:
    disk = SimulatedDisk(lock_path)
    disk.fill_at(0)
    with pytest.raises(DiskFull):
        LogDirectory(lock_path, disk=disk)
    disk.heal()
    LogDirectory(lock_path, disk=disk).close(now_ms=NOW_MS)


def test_a_close_on_a_full_disk_gives_the_lock_back_and_is_not_clean(lock_path: Path) -> None:
    disk = SimulatedDisk(lock_path)
    directory = open_directory(lock_path, disk)
    append(directory.logs[ORDERS], 0)
    disk.fill_at(0)
    assert directory.close(now_ms=NOW_MS) is False
    disk.heal()
    again = open_directory(lock_path, disk)
    assert values(read_records(again.logs[ORDERS])) == [content(0)]
    again.abandon()


def test_a_put_that_found_no_space_changes_no_state(lock_path: Path) -> None:
    disk = SimulatedDisk(lock_path)
    directory = open_directory(lock_path, disk)
    state = StateLog(directory, ORDERS)
    state.put([(b"a", b"1")], now_ms=NOW_MS)
    disk.fill_at(0)
    with pytest.raises(DiskFull):
        state.put([(b"a", b"2"), (b"b", b"2")], now_ms=NOW_MS)
    assert dict(state) == {b"a": b"1"}
    disk.heal()
    state.put([(b"b", b"2")], now_ms=NOW_MS)
    state.log.sync(now_ms=NOW_MS)
    assert dict(StateLog(directory, ORDERS)) == {b"a": b"1", b"b": b"2"}
    directory.abandon()
