"""The list of aborted transactions on disk: one that is missing is missed."""

from pathlib import Path

import pytest

from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import TRANSACTIONAL, Marker
from millstream.log.transaction_index import TXN_INDEX_SUFFIX, load_aborted, save_aborted
from tests.support.batches import NOW_MS, open_log
from tests.support.compaction import committed_records, compact, keyed
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/orders-0")
CONFIG = LogConfig(is_compacted=True)
SEGMENT = DIRECTORY / "00000000000000000000.log"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Path("/"))


def write_aborted(log: PartitionLog, *, sequence: int = 0) -> None:
    content = keyed(
        (b"a", b"aborted"),
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
    log.append(content, now_ms=NOW_MS, in_transaction=True)
    log.append_marker(Marker(False, 0), producer_id=7, producer_epoch=0, now_ms=NOW_MS)


def close(log: PartitionLog) -> None:
    log.sync(now_ms=NOW_MS)
    assert log.close(now_ms=NOW_MS)


def remove_indexes(disk: SimulatedDisk) -> None:
    for name in index_names(disk):
        disk.remove(DIRECTORY / name)


def index_names(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in disk.names(DIRECTORY) if TXN_INDEX_SUFFIX in name)


def reopen(disk: SimulatedDisk) -> PartitionLog:
    return open_log(disk, DIRECTORY, CONFIG, was_closed_cleanly=True)


@pytest.mark.parametrize("is_rolled", [True, False], ids=["closed", "growing"])
def test_a_missing_index_is_rebuilt_from_the_log_and_saved(
    disk: SimulatedDisk, is_rolled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(disk, DIRECTORY, CONFIG)
    write_aborted(log)
    if is_rolled:
        log.roll(now_ms=NOW_MS)
    close(log)
    remove_indexes(disk)
    log = reopen(disk)
    assert len(log.aborted_in(0, 2)) == 1
    assert committed_records(log) == []
    assert load_aborted(disk, SEGMENT) == log.aborted_in(0, 2)
    assert "transaction index is missing" in caplog.text


def test_an_index_that_is_rebuilt_costs_no_producer_its_state(disk: SimulatedDisk) -> None:
    """Its snapshot may know more than the log, of which the beginning was deleted."""
    log = open_log(disk, DIRECTORY, CONFIG)
    write_aborted(log)
    log.roll(now_ms=NOW_MS)
    log.append(keyed((b"z", b"z")), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    log.advance_start(2)
    close(log)
    remove_indexes(disk)
    assert len(reopen(disk).producers) == 1


def test_a_segment_without_aborted_transactions_says_so(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(disk, DIRECTORY, CONFIG)
    for value in (b"1", b"2"):
        log.append(keyed((b"a", value)), now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    assert index_names(disk) == [f"{offset:020d}.txnindex.checked" for offset in (0, 1)]
    assert load_aborted(disk, SEGMENT) == []
    close(log)
    reopen(disk)
    assert caplog.text == ""


def test_a_cleaned_segment_says_so_too(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(disk, DIRECTORY, CONFIG)
    for value in (b"1", b"2"):
        log.append(keyed((b"a", value)), now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    compact(disk, log)
    close(log)
    log = reopen(disk)
    assert index_names(disk)[0] == "00000000000000000000.txnindex.checked"
    assert caplog.text == ""


def test_a_list_that_becomes_empty_replaces_the_one_before(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, CONFIG)
    write_aborted(log)
    log.roll(now_ms=NOW_MS)
    save_aborted(disk, SEGMENT, [])
    assert load_aborted(disk, SEGMENT) == []


def test_what_is_saved_already_is_not_written_again(disk: SimulatedDisk) -> None:
    log = open_log(disk, DIRECTORY, CONFIG)
    write_aborted(log)
    log.roll(now_ms=NOW_MS)
    aborted = log.aborted_in(0, 2)
    syncs = len(disk.syncs)
    save_aborted(disk, SEGMENT, aborted)
    assert len(disk.syncs) == syncs
