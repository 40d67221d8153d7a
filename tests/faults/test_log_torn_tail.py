"""The log file cut at every byte of its tail: an unfinished write, told apart from damage.

Nothing behind the last synced byte was promised. So a prefix stays, the rest goes, and the log
goes on at once; what was synced is never cut off, whatever is wrong with it.
"""

import logging
from pathlib import Path

import pytest

from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog
from millstream.log.segment import DamagedSegment
from tests.support.batches import NOW_MS, batch, open_log, read_records, read_span, values
from tests.support.simulated_disk import SimulatedDisk, Survival

ROOT = Path("/disk")
DIRECTORY = ROOT / "orders-0"
LOG_FILE = DIRECTORY / "00000000000000000000.log"
CONFIG = LogConfig(index_interval_bytes=100)
BATCHES = [[b"a", b"b"], [b"c" * 40], [b"d"], [b"e" * 70, b"f", b"g"]]


def write_log() -> tuple[SimulatedDisk, list[int]]:
    """A disk with a log of four batches, not closed, and the positions where they end."""
    disk = SimulatedDisk(ROOT)
    log = open_log(disk, DIRECTORY, CONFIG)
    ends = []
    for contents in BATCHES:
        log.append(batch(*contents), now_ms=NOW_MS)
        ends.append(log.size_bytes)
    log.sync(now_ms=NOW_MS)
    return disk, ends


def values_before(position: int, ends: list[int]) -> list[bytes]:
    return [v for contents, end in zip(BATCHES, ends, strict=True) if end <= position
            for v in contents]  # fmt: skip


def reopen(disk: SimulatedDisk, *, synced_offset: int = 0) -> PartitionLog:
    return open_log(disk, DIRECTORY, CONFIG, leader_epoch=1, synced_offset=synced_offset)


def append_and_check(log: PartitionLog, before: list[bytes]) -> None:
    appended = log.append(batch(b"new", b"newer"), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    assert appended.base_offset == len(before)
    assert values(read_records(log)) == [*before, b"new", b"newer"]


def test_a_log_cut_at_any_byte_keeps_a_prefix_and_goes_on() -> None:
    whole, ends = write_log()
    for cut in range(ends[-1] + 1):
        disk = whole.copy()
        del disk.content(LOG_FILE)[cut:]
        append_and_check(reopen(disk), values_before(cut, ends))


def test_a_log_zeroed_from_any_byte_on_keeps_a_prefix_and_goes_on() -> None:
    whole, ends = write_log()
    for cut in range(ends[-1] + 1):
        disk = whole.copy()
        disk.content(LOG_FILE)[cut:] = bytes(ends[-1] - cut)
        pairs = zip(disk.content(LOG_FILE), whole.content(LOG_FILE), strict=True)
        # Some of the bytes were zero before.
        same = next((at for at, (one, two) in enumerate(pairs) if one != two), ends[-1])
        append_and_check(reopen(disk), values_before(same, ends))


def test_a_hole_in_the_tail_ends_the_log_there_and_what_lies_behind_is_kept_aside() -> None:
    whole, ends = write_log()
    for position in range(ends[0], ends[1]):
        disk = whole.copy()
        disk.content(LOG_FILE)[position] ^= 0x10
        append_and_check(reopen(disk, synced_offset=2), values_before(ends[0], ends))
        assert f"00000000000000000000.torn-{ends[0]}" in disk.names(DIRECTORY)


def test_the_cut_is_durable_before_new_records_are_visible() -> None:
    whole, ends = write_log()
    del whole.content(LOG_FILE)[ends[2] + 20 :]
    reopen(whole)
    for survival in Survival:
        log = reopen(whole.after_power_cut(survival))
        assert values(read_records(log)) == values_before(ends[2], ends)


def test_a_torn_tail_is_a_warning_and_damage_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    whole, ends = write_log()
    torn = whole.copy()
    del torn.content(LOG_FILE)[ends[2] + 20 :]
    reopen(torn, synced_offset=4)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{LOG_FILE}: cut off 20 bytes from byte {ends[2]} on" in caplog.text


def test_a_cut_into_what_was_synced_is_damage_and_its_offsets_are_not_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, ends = write_log()
    for cut in range(ends[-1]):
        caplog.clear()
        disk = whole.copy()
        del disk.content(LOG_FILE)[cut:]
        log = reopen(disk, synced_offset=7)
        kept = values_before(cut, ends)
        check_gap(log, kept)
        assert any(record.levelno == logging.ERROR for record in caplog.records)
        assert str(LOG_FILE) in caplog.text
        appended = log.append(batch(b"new"), now_ms=NOW_MS)
        log.sync(now_ms=NOW_MS)
        assert appended.base_offset == 7
        check_gap(log, kept)
        again = reopen(disk, synced_offset=8)
        check_gap(again, kept)
        assert values(read_records(again, 7)) == [b"new"]


def check_gap(log: PartitionLog, kept: list[bytes]) -> None:
    """The prefix is served; the rest, up to offset 7, is missing and said to be."""
    records: list[Record] = []
    while len(records) < len(kept):
        span = log.read(len(records), bytes_max=1)
        records += [r for r in read_span(span) if r.offset >= len(records)]
    assert values(records) == kept
    for offset in range(len(kept), 7):
        with pytest.raises(DamagedSegment) as caught:
            log.read(offset, bytes_max=1000)
        assert caught.value.resume_offset == 7
