"""Sparse indexes: the entry before an offset or a time, in memory and on disk alike."""

from pathlib import Path

import pytest

from millstream.log.indexes import OffsetIndex, OffsetMark, TimeIndex, TimeMark
from tests.support.simulated_disk import SimulatedDisk

PATH = Path("/disk/index")
BASE = 1000
MARKS = [OffsetMark(1009, 100), OffsetMark(1019, 200), OffsetMark(1029, 300)]
TIMES = [TimeMark(50, 1009), TimeMark(60, 1019), TimeMark(90, 1029)]


def offset_index(*, on_disk: bool) -> OffsetIndex:
    disk = SimulatedDisk(PATH.parent)
    index = OffsetIndex(disk.open(PATH), BASE, is_growing=True)
    for mark in MARKS:
        index.add(mark)
    index.save()
    return OffsetIndex(disk.open(PATH), BASE, is_growing=False) if on_disk else index


def time_index(*, on_disk: bool) -> TimeIndex:
    disk = SimulatedDisk(PATH.parent)
    index = TimeIndex(disk.open(PATH), BASE, is_growing=True)
    for mark in TIMES:
        index.add(mark)
    index.save()
    return TimeIndex(disk.open(PATH), BASE, is_growing=False) if on_disk else index


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("offset", "expected"),
    [(1000, None), (1008, None), (1009, 0), (1018, 0), (1019, 1), (1029, 2), (9999, 2)],
)
def test_the_last_mark_at_or_before_an_offset(
    on_disk: bool, offset: int, expected: int | None
) -> None:
    found = offset_index(on_disk=on_disk).mark_for(offset)
    assert found == (None if expected is None else MARKS[expected])


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (99, 0), (100, 1), (299, 2), (300, 3)])
def test_the_marks_behind_a_position(position: int, expected: int) -> None:
    assert list(offset_index(on_disk=True).marks_behind(position)) == MARKS[expected:]


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("timestamp", "expected"), [(49, None), (50, None), (51, 0), (60, 0), (61, 1), (91, 2)]
)
def test_the_last_mark_strictly_before_a_time(
    on_disk: bool, timestamp: int, expected: int | None
) -> None:
    found = time_index(on_disk=on_disk).mark_for(timestamp)
    assert found == (None if expected is None else TIMES[expected])


def test_a_time_is_added_only_if_it_is_the_largest() -> None:
    index = time_index(on_disk=False)
    index.add(TimeMark(90, 1039))
    index.add(TimeMark(10, 1049))
    assert len(index) == 3
    index.add(TimeMark(91, 1059))
    assert index.last == TimeMark(91, 1059)


def test_an_empty_index_has_no_marks() -> None:
    disk = SimulatedDisk(PATH.parent)
    assert OffsetIndex(disk.open(PATH), BASE, is_growing=True).last is None
    assert TimeIndex(disk.open(PATH), BASE, is_growing=False).last == TimeMark(-1, BASE)


def test_a_frozen_index_reads_what_it_saved() -> None:
    index = offset_index(on_disk=False)
    index.freeze()
    assert index.is_on_disk
    assert [index.mark(number) for number in range(len(index))] == MARKS


def test_half_an_entry_is_noticed() -> None:
    disk = SimulatedDisk(PATH.parent)
    disk.open(PATH).append([bytes(12)])
    assert not OffsetIndex(disk.open(PATH), BASE, is_growing=False).is_whole
    assert TimeIndex(disk.open(PATH), BASE, is_growing=False).is_whole
