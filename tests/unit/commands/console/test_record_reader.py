"""Which records are the newest, and how much is read to know it."""

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.base.offsets import OffsetRange
from millstream.commands.connecting import Partition
from millstream.commands.console.record_reader import (
    READ_BYTES_MAX,
    Ranges,
    Stretch,
    _record,
    newest_of,
    size_of,
)
from millstream.web.console.facts import RecordSeen


class MemoryLog:
    """Partitions of records. `held_bytes_max` is the most that one read gave."""

    def __init__(self) -> None:
        self.written: dict[Partition, list[RecordSeen]] = {}
        self.held_bytes_max = 0
        self.reads = 0
        self.has_time = True

    def write(self, number: int, offset: int, at_ms: int, value: bytes = b"v") -> None:
        one = RecordSeen(
            topic="t", partition=number, offset=offset, timestamp_ms=at_ms, key=None, value=value
        )
        self.written.setdefault(Partition("t", number), []).append(one)

    def available(self) -> dict[Partition, OffsetRange]:
        return {
            part: OffsetRange(start=0, end=found[-1].offset + 1)
            for part, found in self.written.items()
        }

    def read(self, wanted: Ranges, records_max: int, bytes_max: int) -> Stretch:
        self.reads += 1
        found: list[RecordSeen] = []
        unread = set(wanted)
        for part, within in wanted.items():
            for one in self._between(part, within):
                held_bytes = sum(map(size_of, found))
                is_full = len(found) >= records_max or (found and held_bytes >= bytes_max)
                if is_full or not self.has_time:
                    return Stretch(found=found, unread=frozenset(unread))
                found.append(one)
                self.held_bytes_max = max(self.held_bytes_max, sum(map(size_of, found)))
            unread.remove(part)
        return Stretch(found=found)

    def _between(self, part: Partition, within: OffsetRange) -> Iterator[RecordSeen]:
        return (one for one in self.written[part] if one.offset in within)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def test_fresh_records_of_one_partition_are_all_shown(log: MemoryLog) -> None:
    for number in range(10):
        for offset in range(100):
            log.write(number, offset, at_ms=offset)
    for offset in range(100, 150):
        log.write(3, offset, at_ms=1_000 + offset)
    look = newest_of(log.available(), log.read, limit=50)
    assert [(one.partition, one.offset) for one in look] == [(3, at) for at in range(149, 99, -1)]
    assert (look.is_cut, look.unread) == (False, ())


@pytest.mark.parametrize("partitions", [1, 2, 7, 60])
def test_the_newest_are_those_of_a_sort_by_time(log: MemoryLog, partitions: int) -> None:
    for at_ms in range(400):
        number = at_ms * at_ms % 61 % partitions
        log.write(number, len(log.written.get(Partition("t", number), [])), at_ms)
    look = newest_of(log.available(), log.read, limit=50)
    assert [one.timestamp_ms for one in look] == list(range(399, 349, -1))


def test_large_records_are_read_until_they_are_too_many_bytes(log: MemoryLog) -> None:
    for offset in range(500):
        log.write(0, offset, at_ms=offset, value=bytes(1_000))
    look = newest_of(log.available(), log.read, limit=500, bytes_max=20_000)
    assert [one.offset for one in look] == list(range(499, 479, -1))
    assert look.is_cut
    assert log.held_bytes_max <= 21_000
    assert READ_BYTES_MAX <= 16 << 20


def test_one_record_is_read_however_large_it_is(log: MemoryLog) -> None:
    for offset in range(5):
        log.write(0, offset, at_ms=offset, value=bytes(1_000))
    look = newest_of(log.available(), log.read, limit=50, bytes_max=10)
    assert ([one.offset for one in look], look.is_cut) == ([4], True)


def test_small_records_before_large_ones_are_no_reason_to_leave_the_newest(log: MemoryLog) -> None:
    for offset in range(100):
        log.write(0, offset, at_ms=offset, value=bytes(1 if offset in (99, 98) else 1_000))
    look = newest_of(log.available(), log.read, limit=50, bytes_max=10_000)
    assert [one.offset for one in look][:8] == list(range(99, 91, -1))
    assert look.is_cut


def test_partitions_that_nothing_was_read_of_are_told(log: MemoryLog) -> None:
    for number in range(6):
        log.write(number, 0, at_ms=number, value=bytes(1_000))
    look = newest_of(log.available(), log.read, limit=50, bytes_max=3_000)
    assert (len(look), look.is_cut, look.unread) == (3, True, (3, 4, 5))


def test_a_look_ends_with_its_time(log: MemoryLog) -> None:
    log.write(0, 1_000_000, at_ms=1)
    log.has_time = False
    look = newest_of(log.available(), log.read, limit=50)
    assert (list(look), look.is_cut, look.unread) == ([], True, (0,))


def test_offsets_without_records_are_passed_soon(log: MemoryLog) -> None:
    """Of a transaction's end, or of what compaction took."""
    log.write(0, 3, at_ms=1)
    available = {Partition("t", 0): OffsetRange(start=0, end=1_000_000)}
    look = newest_of(available, log.read, limit=50)
    assert ([one.offset for one in look], look.is_cut) == ([3], False)
    assert log.reads < 12


class NamelessHeaders:
    """A message as librdkafka's, one of whose headers has a name that is not UTF-8."""

    def headers(self) -> Any:
        raise SystemError("returned a result with an exception set")

    def __getattr__(self, name: str) -> Any:
        given = {"topic": "t", "partition": 1, "offset": 7, "timestamp": (1, 5), "value": b"v"}
        return lambda: given.get(name)


def test_a_record_whose_headers_cannot_be_read_is_still_read() -> None:
    found = _record(NamelessHeaders())
    assert (found.offset, found.value) == (7, b"v")
    assert found.headers is None
