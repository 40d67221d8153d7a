"""Single decisions of the course; whole courses are played in tests/properties/."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from millstream.capture.change import CapturedTable, Change, Transaction
from millstream.capture.load import table_course, window
from millstream.capture.load.course import Course
from millstream.capture.load.plan import Phase, TableLoad
from millstream.capture.load.table_course import Ask, Parts, Read, Scan, Settle, Split

ORDERS = CapturedTable(name="orders", topic="shop.orders", columns=(), key=("id",))
ITEMS = CapturedTable(name="items", topic="shop.items", columns=(), key=("id",))
SWEEPING = TableLoad(phase=Phase.SWEEPING, ends=(5,))


class Left(set[bytes]):
    def take(self, count: int) -> list[bytes]:
        taken = sorted(self)[:count]
        self.difference_update(taken)
        return taken

    def close(self) -> None:
        self.clear()


def course_of(*tables: CapturedTable, load: TableLoad | None = None) -> Course:
    course = Course(ends=lambda _topic: [5], is_past=lambda position, other: position >= other)
    for table in tables:
        course.add(table, load)
    return course


def settle(course: Course) -> None:
    (ask,) = course.asks()
    assert isinstance(ask, Settle)
    course.arrived(ask, None)


def hand_over(course: Course, number: int, key: bytes) -> None:
    change = Change(ORDERS, "c", key, None, b"{}")
    name = str(number)
    passed = course.followed(
        Transaction(commit=name, resume=name, id=name, at_ms=0, changes=[change])
    )
    assert list(passed) == [change]


def deleted(course: Course) -> list[bytes | None]:
    return [change.key for due in course.due("9") for change in due.changes]


def scan_of(course: Course) -> Ask:
    """The sweep's ask, once what was written before it is committed."""
    assert deleted(course) == []
    assert course.asks() == []
    course.committed()
    (ask,) = course.asks()
    assert isinstance(ask, Scan)
    return ask


def test_nothing_is_read_before_the_database_has_settled() -> None:
    course = course_of(ORDERS)
    (ask,) = course.asks()
    assert isinstance(ask, Settle)
    assert ask.tables == (ORDERS,)
    assert course.asks() == []
    course.arrived(ask, None)
    (split,) = course.asks()
    assert isinstance(split, Split)


def test_no_more_is_read_ahead_than_there_is_room_for() -> None:
    course = course_of(ORDERS, ITEMS)
    settle(course)
    for split in course.asks():
        parts = [(None, "a"), ("a", "b"), ("b", "c"), ("c", None)]
        course.arrived(split, Parts(parts=parts, rows_estimate=9))
    reads = course.asks()
    assert len(reads) == 6
    assert all(isinstance(read, Read) for read in reads)
    assert course.asks() == []


@dataclass(frozen=True)
class ChunkOf:
    """It sees nothing of what was handed over."""

    rows: Sequence[tuple[bytes, bytes]]
    last_key: str | None
    closes_at: str = "5"
    table: CapturedTable = ORDERS

    def sees(self, transaction: Transaction) -> bool:
        return False


def test_a_chunk_that_is_read_again_leaves_those_before_it_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window, "KEYS_MAX", 0)
    course = course_of(ORDERS)
    settle(course)
    (split,) = course.asks()
    course.arrived(split, Parts(parts=[(None, None)], rows_estimate=2))
    (first,) = course.asks()
    course.arrived(first, ChunkOf([(b"1", b"one")], "1"))
    (second,) = course.asks()
    hand_over(course, 1, b"7")
    course.arrived(second, ChunkOf([(b"2", b"two")], None))
    (again,) = course.asks()
    assert isinstance(again, Read)
    assert (again.after, again.must_wait) == ("1", True)
    assert [change.key for due in course.due("9") for change in due.changes] == [b"1"]


def test_a_key_that_is_left_is_deleted_and_the_load_is_done_then() -> None:
    course = course_of(ORDERS, load=SWEEPING)
    settle(course)
    course.arrived(scan_of(course), Left({b"1", b"2"}))
    assert deleted(course) == [b"1", b"2"]
    assert not course.is_done
    assert deleted(course) == []
    assert course.is_done


@pytest.mark.parametrize("is_scanned", [False, True])
def test_a_key_that_is_written_during_the_sweep_stays(is_scanned: bool) -> None:
    course = course_of(ORDERS, load=SWEEPING)
    settle(course)
    scan = scan_of(course)
    if is_scanned:
        course.arrived(scan, Left({b"1", b"2"}))
        hand_over(course, 1, b"1")
    else:
        hand_over(course, 1, b"1")
        course.arrived(scan, Left({b"1", b"2"}))
    assert deleted(course) == [b"2"]


def test_a_sweep_that_cannot_tell_what_was_written_meanwhile_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_course, "TOUCHED_MAX", 1)
    course = course_of(ORDERS, load=SWEEPING)
    settle(course)
    scan = scan_of(course)
    hand_over(course, 1, b"1")
    hand_over(course, 2, b"7")
    course.arrived(scan, Left({b"1", b"2"}))
    assert deleted(course) == []
    course.committed()
    (again,) = course.asks()
    assert isinstance(again, Scan)
    course.arrived(again, Left({b"2"}))
    assert deleted(course) == [b"2"]


def test_a_table_that_is_known_takes_its_new_version_and_is_not_loaded_again() -> None:
    course = course_of(ORDERS, load=TableLoad(phase=Phase.DONE))
    course.add(ORDERS)
    assert course.is_done
    assert course.due("9") == []


def test_a_truncate_of_a_table_that_was_gone_before_the_run_is_swept() -> None:
    course = course_of(ITEMS, load=TableLoad(phase=Phase.DONE))
    gone = Change(ORDERS, "t", None, None, None)
    transaction = Transaction(commit="1", resume="1", id="1", at_ms=0, changes=[gone])
    assert list(course.followed(transaction)) == [gone]
    settle(course)
    course.arrived(scan_of(course), Left({b"1", b"2"}))
    assert deleted(course) == [b"1", b"2"]


def test_a_table_that_went_while_it_was_loaded_is_swept_and_not_read() -> None:
    course = course_of()
    course.add_gone(ORDERS)
    settle(course)
    course.arrived(scan_of(course), Left({b"1"}))
    assert deleted(course) == [b"1"]
    assert deleted(course) == []
    assert course.is_done
