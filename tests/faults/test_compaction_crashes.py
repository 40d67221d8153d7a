"""The power goes out at every step of a cleaning and of the swaps in it.

Whatever the disk keeps of what was not synced: the log opens, the state that a reader builds from
it is the same as before, every record that is left is where it was, and the next cleaning works.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.base.disk import DiskFailed, DiskFull
from millstream.log.compaction_run import CleanedSegment, CompactionDone, CompactionRun
from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import TRANSACTIONAL, Codec, Marker
from tests.support.batches import NOW_MS, open_log, read_records
from tests.support.compaction import committed_records, compact, job_for, keyed, state_of, swap_in
from tests.support.simulated_disk import PowerCut, SimulatedDisk, Survival

ROOT = Path("/simulated")
DIRECTORY = ROOT / "orders-0"
CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    is_compacted=True,
    deletes_old_segments=False,
    delete_retention_ms=1_000,
)
SURVIVALS = [(survival, 0) for survival in Survival] + [(Survival.TORN, 1)]
LATER_MS = NOW_MS + 2_000


@dataclass(frozen=True)
class Expected:
    """What is true of the log before a cleaning, and after it."""

    state: dict[bytes, bytes]
    places: dict[int, tuple[bytes | None, bytes | None]]
    end_offset: int


def fill(log: PartitionLog, *, rounds: int, first: int) -> None:
    """Values that replace one another, tombstones, and transactions of either end."""
    for number in range(first, first + rounds):
        codec = list(Codec)[number % len(Codec)]
        log.append(
            keyed(
                (b"a", b"%d" % number), (b"b %d" % (number % 3), b"%d " % number * 5), codec=codec
            ),
            now_ms=NOW_MS,
        )
        if number % 3 == 0:
            log.append(keyed((b"b %d" % (number % 2), None)), now_ms=NOW_MS)
        if number % 4 == 0:
            transact(log, number, is_commit=number % 8 == 0)
    log.roll(now_ms=NOW_MS)
    log.append(keyed((b"last", b"%d" % first)), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)


def transact(log: PartitionLog, number: int, *, is_commit: bool) -> None:
    content = keyed(
        (b"a", b"in transaction %d" % number),
        (b"t", b"in transaction %d" % number),
        attributes=TRANSACTIONAL,
        producer_id=number,
        producer_epoch=0,
        base_sequence=0,
    )
    log.append(content, now_ms=NOW_MS, in_transaction=True)
    log.append_marker(Marker(is_commit, 0), producer_id=number, producer_epoch=0, now_ms=NOW_MS)


def prepared() -> tuple[SimulatedDisk, int, Expected]:
    """A disk with a log that was cleaned once, and is dirty again; where, and what it holds."""
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY, CONFIG)
    fill(log, rounds=5, first=0)
    cleaned = compact(disk, log)
    assert cleaned is not None
    fill(log, rounds=6, first=100)
    return disk.copy(), cleaned.offset, expected_of(log)


def expected_of(log: PartitionLog) -> Expected:
    places = {one.offset: (one.key, one.value) for one in read_records(log)}
    return Expected(state_of(committed_records(log)), places, log.end_offset)


def check(log: PartitionLog, expected: Expected) -> None:
    assert log.end_offset == expected.end_offset
    found = {one.offset: (one.key, one.value) for one in read_records(log)}
    assert found.items() <= expected.places.items()
    assert state_of(committed_records(log)) == expected.state


def check_after(disk: SimulatedDisk, cleaned_offset: int, expected: Expected) -> None:
    """The log opens and is whole; nothing unfinished lies about; it can be cleaned again."""
    log = reopen(disk, expected)
    check(log, expected)
    for segment in log.closed_segments:
        assert not segment.must_save_indexes, "an index is not that of its segment"
    names = disk.names(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    compact(disk, log, cleaned_offset=cleaned_offset, now_ms=LATER_MS)
    check(log, expected)
    check(reopen(disk, expected), expected)


def reopen(disk: SimulatedDisk, expected: Expected) -> PartitionLog:
    return open_log(disk, DIRECTORY, CONFIG, synced_offset=expected.end_offset)


def cut_everywhere(
    disk: SimulatedDisk, cleaned_offset: int, expected: Expected, stride: int
) -> Iterator[str]:
    """Steps of a cleaning, and what is left by it; yields the name of each case."""
    for step in range(0, 1 << 30, stride):
        tried = disk.copy()
        log = reopen(tried, expected)
        tried.cut_power_at(tried.steps + step)
        is_cut = True
        with suppress(PowerCut):
            compact(tried, log, cleaned_offset=cleaned_offset, now_ms=LATER_MS)
            is_cut = False
        for survival, seed in SURVIVALS:
            yield f"step {step}, left: {survival.value} ({seed})"
            survivor = tried.after_power_cut(survival, seed=step * 10 + seed)
            check_after(survivor, cleaned_offset, expected)
        if not is_cut:
            assert step > 40, "too few steps to mean anything"
            return


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.full)])
def test_a_power_cut_at_any_step_of_a_cleaning_changes_nothing_for_readers(stride: int) -> None:
    disk, cleaned_offset, expected = prepared()
    last: deque[str] = deque(maxlen=1)
    try:
        last.extend(cut_everywhere(disk, cleaned_offset, expected, stride))
    except Exception as error:
        raise AssertionError(f"failed in case: {last[0]}") from error


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.full)])
def test_a_power_cut_while_recovery_finishes_a_swap_changes_nothing_either(stride: int) -> None:
    disk, cleaned_offset, expected = prepared()
    for swap_step in range(1, 20, stride):
        tried = cut_in_first_swap(disk, cleaned_offset, expected, swap_step)
        for recovery_step in range(1 << 30):
            survivor = tried.after_power_cut(Survival.EVERYTHING)
            survivor.cut_power_at(recovery_step)
            try:
                reopen(survivor, expected)
            except PowerCut:
                for survival, seed in SURVIVALS:
                    left = survivor.after_power_cut(survival, seed=recovery_step + seed)
                    check_after(left, cleaned_offset, expected)
            else:
                break


def cut_in_first_swap(
    disk: SimulatedDisk, cleaned_offset: int, expected: Expected, step: int
) -> SimulatedDisk:
    tried = disk.copy()
    log = reopen(tried, expected)
    job = job_for(log, cleaned_offset=cleaned_offset, now_ms=LATER_MS)
    assert job is not None
    first = next(iter(CompactionRun(tried, job).run()))
    assert isinstance(first, CleanedSegment)
    tried.cut_power_at(tried.steps + step)
    with suppress(PowerCut):
        swap_in(log, first)
    return tried


def test_a_full_disk_stops_a_cleaning_at_any_step_and_harms_nothing() -> None:
    disk, cleaned_offset, expected = prepared()
    for step in range(1 << 30):
        tried = disk.copy()
        log = reopen(tried, expected)
        tried.fill_at(tried.steps + step)
        try:
            compact(tried, log, cleaned_offset=cleaned_offset, now_ms=LATER_MS)
        except DiskFull:
            check(log, expected)
            tried.heal()
            check_after(tried.copy(), cleaned_offset, expected)
        else:
            assert step > 30
            return


def test_a_swap_that_found_no_space_goes_on_where_it_was() -> None:
    disk, cleaned_offset, expected = prepared()
    log = reopen(disk, expected)
    job = job_for(log, cleaned_offset=cleaned_offset, now_ms=LATER_MS)
    assert job is not None
    for result in CompactionRun(disk, job).run():
        if isinstance(result, CompactionDone):
            break
        swap = log.begin_swap(result.base_offset, result.end_offset, now_ms=LATER_MS)
        assert swap is not None
        for step in range(1 << 30):
            disk.fill_at(disk.steps + step)
            with suppress(DiskFull):
                swap.run()
                break
            check(log, expected)
            disk.heal()
        disk.heal()
        log.complete_swap(swap)
        check(log, expected)
    check(reopen(disk.copy(), expected), expected)


@pytest.mark.parametrize("name", [".log.cleaned", ".index.cleaned", ".timeindex.cleaned"])
def test_a_cleaning_whose_files_cannot_be_synced_is_not_swapped_in(name: str) -> None:
    disk, cleaned_offset, expected = prepared()
    log = reopen(disk, expected)
    disk.fail_syncs(lambda path: path.name.endswith(name))
    with pytest.raises(DiskFailed):
        compact(disk, log, cleaned_offset=cleaned_offset, now_ms=LATER_MS)
    check(log, expected)
    disk.heal()
    check_after(disk.copy(), cleaned_offset, expected)
