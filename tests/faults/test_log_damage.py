"""A flipped bit at every byte of every file: noticed, named, never served.

What a read returns is what was appended, or it raises DamagedSegment with the file, the position
and the offset where reading can go on. Everything else stays readable. Damage to an index or a
checkpoint costs nothing but a line in the diagnostics.
"""

import itertools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.log_directory import LogDirectory
from millstream.log.partition_log import OffsetOutOfRange, PartitionLog
from millstream.log.record_batch import BatchHeader, read_header
from millstream.log.segment import DamagedSegment
from tests.support.batches import NOW_MS, batch, open_log, read_batches, read_records, read_span
from tests.support.simulated_disk import SimulatedDisk

ORDERS = ("orders", 0)
CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=100)
BATCHES = 24
DELETED = 3


@dataclass(frozen=True)
class Original:
    """A data directory after a clean stop, and all that is in it."""

    path: Path
    disk: SimulatedDisk
    records: dict[int, Record]
    batches: list[BatchHeader]
    epochs: list[tuple[int, int]]
    cluster_id: str

    @property
    def partition(self) -> Path:
        return self.path / "orders-0"

    def closed_files(self, suffix: str) -> list[Path]:
        names = sorted(n for n in self.disk.names(self.partition) if n.endswith(suffix))
        return [self.partition / name for name in names[:-1]]

    def batch_of(self, offset: int) -> BatchHeader:
        return next(b for b in self.batches if b.base_offset <= offset <= b.last_offset)


@pytest.fixture
def original(lock_path: Path) -> Original:
    """Three starts, each appending from two producers and none; records deleted at the front."""
    disk = SimulatedDisk(lock_path)
    rng = random.Random(4)
    for turn in range(BATCHES):
        if turn % 8 == 0:
            directory = LogDirectory(lock_path, disk=disk)
            log = directory.open_partition(ORDERS, CONFIG, topic_id=bytes(16), now_ms=NOW_MS)
        contents = [bytes([turn]) * rng.randint(0, 60) for _ in range(rng.randint(1, 3))]
        log.append(next_batch(log, turn, contents, rng), now_ms=NOW_MS)
        if turn % 8 == 7:
            log.sync(now_ms=NOW_MS)
            directory.delete_records(ORDERS, min(DELETED, log.end_offset))
            records, batches = read_records(log), [read_header(b) for b in read_batches(log)]
            assert directory.close(now_ms=NOW_MS)
    return Original(
        path=lock_path,
        disk=disk,
        records={record.offset: record for record in records},
        batches=batches,
        epochs=list(log.epochs.entries),
        cluster_id=directory.cluster_id,
    )


def next_batch(
    log: PartitionLog, turn: int, contents: list[bytes], rng: random.Random
) -> memoryview:
    timestamp_ms = NOW_MS + rng.randint(-500, 500)
    producer_id = [1, 2, -1][turn % 3]
    if producer_id == -1:
        return batch(*contents, timestamp_ms=timestamp_ms)
    known = dict(log.producers).get(producer_id)
    sequence = known.last.last_sequence + 1 if known else 0
    return batch(*contents, timestamp_ms=timestamp_ms, producer_id=producer_id, sequence=sequence)


def one_bit_each(size: int) -> Iterator[tuple[int, int]]:
    rng = random.Random(size)
    return ((position, 1 << rng.randint(0, 7)) for position in range(size))


def all_bits(size: int) -> Iterator[tuple[int, int]]:
    return itertools.product(range(size), [1 << number for number in range(8)])


SOME_OR_ALL = pytest.mark.parametrize(
    "bits",
    [one_bit_each, pytest.param(all_bits, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
    ids=["one_bit_each", "all_bits"],
)


def flipped(original: Original, path: Path, position: int, bit: int) -> SimulatedDisk:
    disk = original.disk.copy()
    disk.content(path)[position] ^= bit
    return disk


def check_reads(
    log: PartitionLog, original: Original, path: Path | None = None, position: int = -1
) -> int:
    """Read at every offset, backwards so that no reader's position helps.

    Returns how many offsets were refused. Those lie in the batch at `position` of `path`.
    """
    refused = 0
    for offset in sorted(original.records, reverse=True):
        try:
            found = [r for r in read_span(log.read(offset, bytes_max=1)) if r.offset >= offset]
        except DamagedSegment as damage:
            refused += 1
            check_damage(damage, log, original, offset)
            check_place(damage, path, position)
        else:
            assert found, offset
            assert found == [original.records[record.offset] for record in found]
            assert found[0].offset == offset
    return refused


def check_damage(
    damage: DamagedSegment, log: PartitionLog, original: Original, offset: int
) -> None:
    """Behind the damage reading goes on, with the next batch."""
    assert damage.resume_offset == original.batch_of(offset).last_offset + 1
    assert str(damage.path) in str(damage)
    assert str(damage.position) in str(damage)
    if damage.resume_offset < log.high_watermark:
        assert read_span(log.read(damage.resume_offset, bytes_max=1))


def check_place(damage: DamagedSegment, path: Path | None, position: int) -> None:
    assert path is not None, damage
    assert (damage.path, damage.position) == (path, batch_position(path, position))


def batch_position(path: Path, position: int) -> int:
    """Where the batch starts that has a byte at `position`, from the undamaged sizes."""
    return max(start for start in STARTS[path] if start <= position)


STARTS: dict[Path, list[int]] = {}


def note_starts(original: Original, path: Path) -> None:
    content = original.disk.content(path)
    STARTS[path] = [0]
    while STARTS[path][-1] < len(content):
        size_bytes = read_header(content, STARTS[path][-1]).size_bytes
        STARTS[path].append(STARTS[path][-1] + size_bytes)


def open_original(original: Original, disk: SimulatedDisk) -> LogDirectory:
    directory = LogDirectory(original.path, disk=disk)
    try:
        directory.open_partition(ORDERS, CONFIG, topic_id=bytes(16), now_ms=NOW_MS)
    except BaseException:
        directory.abandon()
        raise
    return directory


def test_the_files_are_worth_damaging(original: Original) -> None:
    """Several closed segments with indexes, several epochs in one of them, records deleted."""
    assert len(original.closed_files(".log")) >= 3
    assert all(len(original.disk.content(path)) > 16 for path in original.closed_files(".index"))
    assert len(original.epochs) == 3
    assert min(original.records) == DELETED
    with pytest.raises(OffsetOutOfRange):
        open_log(original.disk, original.partition, CONFIG, start_offset=DELETED).read(
            0, bytes_max=1
        )


@SOME_OR_ALL
@pytest.mark.parametrize("number", [0, 1])
def test_a_flipped_bit_in_a_closed_segment_is_never_served(
    original: Original, bits: Callable[[int], Iterator[tuple[int, int]]], number: int
) -> None:
    path = original.closed_files(".log")[number]
    note_starts(original, path)
    for position, bit in bits(len(original.disk.content(path))):
        disk = flipped(original, path, position, bit)
        log = open_log(disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=9)
        refused = check_reads(log, original, path, position)
        hurt = read_header(original.disk.content(path), batch_position(path, position))
        offsets = range(max(DELETED, hurt.base_offset), hurt.last_offset + 1)
        assert refused == len(offsets), f"byte {position}, bit {bit}"
        check_times(log, original, hurt=set(offsets))


def check_times(log: PartitionLog, original: Original, *, hurt: set[int]) -> None:
    """A search by time says that it met damage, or finds the first record that is left."""
    left = [record for record in original.records.values() if record.offset not in hurt]
    for timestamp in sorted({record.timestamp_ms for record in original.records.values()}):
        try:
            found = log.first_at_or_after(timestamp)
        except DamagedSegment:
            continue
        expected = min((r.offset for r in left if r.timestamp_ms >= timestamp), default=None)
        assert (found.offset if found else None) == expected


def first_at_or_after(original: Original, timestamp: int) -> int:
    return min(r.offset for r in original.records.values() if r.timestamp_ms >= timestamp)


def test_a_bit_that_flips_while_the_log_is_open_is_never_served(original: Original) -> None:
    path = original.closed_files(".log")[1]
    note_starts(original, path)
    for position, bit in one_bit_each(len(original.disk.content(path))):
        disk = original.disk.copy()
        log = open_log(disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=9)
        check_reads(log, original)
        disk.content(path)[position] ^= bit
        assert check_reads(log, original, path, position) > 0


def test_a_large_read_stops_before_the_damage(original: Original) -> None:
    path = original.closed_files(".log")[1]
    note_starts(original, path)
    base_offset = int(path.stem)
    for position, bit in one_bit_each(len(original.disk.content(path))):
        disk = flipped(original, path, position, bit)
        log = open_log(disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=9)
        start = batch_position(path, position)
        if start == 0:
            with pytest.raises(DamagedSegment):
                log.read(base_offset, bytes_max=1 << 20)
        else:
            span = log.read(base_offset, bytes_max=1 << 20)
            assert span == original.disk.content(path)[:start]


@SOME_OR_ALL
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_in_an_index_changes_no_answer(
    original: Original, bits: Callable[[int], Iterator[tuple[int, int]]], suffix: str
) -> None:
    for path in original.closed_files(suffix):
        for position, bit in bits(len(original.disk.content(path))):
            disk = flipped(original, path, position, bit)
            log = open_log(disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=9)
            assert check_reads(log, original) == 0
            for timestamp in {record.timestamp_ms for record in original.records.values()}:
                found = log.first_at_or_after(timestamp)
                assert found is not None
                assert found.offset == first_at_or_after(original, timestamp)
            newest = log.newest()
            assert newest is not None
            assert newest.timestamp_ms == max(r.timestamp_ms for r in original.records.values())


def test_an_index_entry_that_lies_is_reported_and_the_index_rebuilt(
    original: Original, caplog: pytest.LogCaptureFixture
) -> None:
    path = original.closed_files(".index")[1]
    disk = flipped(original, path, 7, 0x20)
    directory = open_original(original, disk)
    log = directory.logs[ORDERS]
    check_reads(log, original)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert f"{path}: damaged" in caplog.text
    directory.close(now_ms=NOW_MS)
    caplog.clear()
    check_reads(open_log(disk, original.partition, CONFIG, start_offset=DELETED), original)
    assert caplog.records == []


@SOME_OR_ALL
def test_a_damaged_producer_snapshot_is_reported_and_not_missed(
    original: Original,
    bits: Callable[[int], Iterator[tuple[int, int]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = sorted(n for n in original.disk.names(original.partition) if n.endswith(".snapshot"))
    path = original.partition / names[-1]
    expected = {
        id_: list(producer.window)
        for id_, producer in open_log(original.disk.copy(), original.partition, CONFIG).producers
    }
    for position, bit in bits(len(original.disk.content(path))):
        caplog.clear()
        log = open_log(flipped(original, path, position, bit), original.partition, CONFIG)
        found = {id_: list(producer.window) for id_, producer in log.producers}
        assert found == expected, f"byte {position}, bit {bit}"
        assert str(path) in caplog.text


CHECKED_FILES = [
    "millstream.json",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "orders-0/leader-epoch-checkpoint",
]


@SOME_OR_ALL
@pytest.mark.parametrize("suffix", ["", ".checked"])
@pytest.mark.parametrize("name", CHECKED_FILES)
def test_a_flipped_bit_in_a_checkpoint_is_reported_and_changes_nothing(
    original: Original,
    bits: Callable[[int], Iterator[tuple[int, int]]],
    name: str,
    suffix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = original.path / (name + suffix)
    for position, bit in bits(len(original.disk.content(path))):
        caplog.clear()
        directory = open_original(original, flipped(original, path, position, bit))
        directory.abandon()
        assert directory.cluster_id == original.cluster_id
        assert directory.epoch == 3
        log = directory.logs[ORDERS]
        assert (log.start_offset, log.end_offset) == (DELETED, max(original.records) + 1)
        assert log.epochs.entries == original.epochs
        errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert len(errors) == 1
        assert str(path) in errors[0]
        assert "byte" in errors[0]


def test_damage_in_two_places_leaves_the_rest_readable(original: Original) -> None:
    path = original.closed_files(".log")[1]
    note_starts(original, path)
    starts = STARTS[path]
    disk = flipped(original, path, starts[1] + 70, 4)
    disk.content(path)[starts[4] + 9] ^= 1
    log = open_log(disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=9)
    hurt = [read_header(original.disk.content(path), starts[number]) for number in (1, 4)]
    offsets = {o for h in hurt for o in range(h.base_offset, h.last_offset + 1)}
    for offset in sorted(original.records, reverse=True):
        if offset in offsets:
            with pytest.raises(DamagedSegment):
                log.read(offset, bytes_max=1)
        else:
            assert read_span(log.read(offset, bytes_max=1))


def test_a_segment_cut_short_is_damaged_where_it_ends(original: Original) -> None:
    path = original.closed_files(".log")[1]
    note_starts(original, path)
    for cut in range(len(original.disk.content(path))):
        disk = original.disk.copy()
        del disk.content(path)[cut:]
        log = open_log(disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=9)
        first_lost = read_header(
            original.disk.content(path), max(s for s in STARTS[path] if s <= cut)
        ).base_offset
        end_offset = int(original.closed_files(".log")[2].stem)
        for offset in range(int(path.stem), end_offset):
            if offset < first_lost:
                assert read_span(log.read(offset, bytes_max=1))
            else:
                with pytest.raises(DamagedSegment) as caught:
                    log.read(offset, bytes_max=1)
                assert caught.value.resume_offset == end_offset


def test_damage_to_what_was_synced_is_not_taken_for_an_unfinished_write(
    original: Original,
) -> None:
    """In the last segment, after a stop that was not clean: the recovery point tells."""
    path = original.partition / max(
        n for n in original.disk.names(original.partition) if n.endswith(".log")
    )
    note_starts(original, path)
    for position, bit in one_bit_each(len(original.disk.content(path))):
        disk = flipped(original, path, position, bit)
        log = open_log(
            disk,
            original.partition,
            CONFIG,
            start_offset=DELETED,
            leader_epoch=9,
            synced_offset=max(original.records) + 1,
        )
        assert log.end_offset == max(original.records) + 1
        assert check_reads(log, original, path, position) > 0
        log.append(batch(b"more"), now_ms=NOW_MS)
        log.sync(now_ms=NOW_MS)
        again = open_log(
            disk, original.partition, CONFIG, start_offset=DELETED, leader_epoch=10,
            synced_offset=log.end_offset,
        )  # fmt: skip
        assert check_reads(again, original, path, position) > 0
        assert again.end_offset == log.end_offset
