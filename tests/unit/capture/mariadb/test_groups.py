"""The events of one transaction, in memory and on disk."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.change import Change
from millstream.capture.mariadb import binlog_event as events
from millstream.capture.mariadb.binlog_event import HEADER_BYTES
from millstream.capture.mariadb.groups import Group, SpoolUnwritable
from tests.unit.capture.mariadb.binlog_packets import inserted, table_map
from tests.unit.capture.mariadb.test_assembly import shape

SHAPE = shape(table_map()[1 + HEADER_BYTES : -4])
OTHER = shape(table_map(table="others")[1 + HEADER_BYTES : -4])
STEPS = st.lists(st.sampled_from(["add", "mark", "back"]), max_size=40)


def body(number: int) -> bytes:
    return inserted(number)[1 + HEADER_BYTES : -4]


def found(group: Group) -> list[tuple[str, bytes | None]]:
    changes = [change for change in group.changes() if isinstance(change, Change)]
    return [(change.table.name, change.key) for change in changes]


def filled(memory_bytes_max: int) -> Callable[[list[str]], tuple[Group, list[int]]]:
    def fill(steps: list[str]) -> tuple[Group, list[int]]:
        """A group, and what it should hold; `back` is to the mark before."""
        group, kept, marks = Group(memory_bytes_max), list[int](), list[tuple[int, int]]()
        for number, step in enumerate(steps):
            if step == "add":
                group.add(SHAPE if number % 3 else OTHER, events.WRITE_ROWS_V1, body(number))
                kept.append(number)
            elif step == "mark":
                marks.append((group.mark(), len(kept)))
            elif marks:
                mark, length = marks.pop()
                group.truncate_to(mark)
                del kept[length:]
        return group, kept

    return fill


@pytest.mark.parametrize("memory_bytes_max", [0, 50, 100, 10_000])
@given(steps=STEPS)
def test_what_is_kept_comes_in_order_from_memory_and_disk(
    memory_bytes_max: int, steps: list[str]
) -> None:
    group, kept = filled(memory_bytes_max)(steps)
    expected = [
        ("shop.orders" if number % 3 else "shop.others", f'{{"id":{number}}}'.encode())
        for number in kept
    ]
    assert group.is_empty == (not kept)
    assert found(group) == expected


def test_memory_holds_no_more_than_its_limit() -> None:
    group = Group(1000)
    for number in range(500):
        group.add(SHAPE, events.WRITE_ROWS_V1, body(number))
        assert sum(len(kept) for _, _, kept in group._memory) <= 1000
    assert len(found(group)) == 500


def test_a_disk_that_is_full_interrupts_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(memory_bytes_max=0)
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        with pytest.raises(SpoolUnwritable, match="No space left on device"):
            group.add(SHAPE, events.WRITE_ROWS_V1, body(1))
        group.close()
