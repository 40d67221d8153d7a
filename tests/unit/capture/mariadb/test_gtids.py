"""Sets of GTIDs: how far a binlog was read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.mariadb.gtids import (
    BadPosition,
    MariadbGtids,
    MysqlGtids,
    Position,
    is_past,
    parse_gtids,
)

SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "ffffffff-71ca-11e1-9e33-c80aa9429562"
NUMBERS = st.lists(st.integers(1, 30), min_size=1)


def mysql_set(numbers: list[int]) -> MysqlGtids:
    gtids = MysqlGtids({})
    for number in numbers:
        gtids = gtids.with_gtid(f"{SOURCE}:{number}")
    return gtids


@given(NUMBERS, NUMBERS)
def test_a_set_of_mysql_has_what_was_added_and_nothing_else(
    numbers: list[int], others: list[int]
) -> None:
    gtids = mysql_set(numbers)
    assert {number for number in range(1, 32) if f"{SOURCE}:{number}" in gtids} == set(numbers)
    assert gtids.covers(mysql_set(others)) == (set(others) <= set(numbers))
    assert parse_gtids(str(gtids)) == gtids


def test_a_set_of_mysql_is_written_in_ranges() -> None:
    assert str(mysql_set([7, 1, 3, 2])) == f"{SOURCE}:1-3:7"
    assert str(MysqlGtids.parse(f"{OTHER}:1,\n{SOURCE}:1-3:4")) == f"{SOURCE}:1-4,{OTHER}:1"


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(1, 9), st.integers(1, 2**63))))
def test_a_set_of_mariadb_reads_back_as_itself(last: dict[int, tuple[int, int]]) -> None:
    gtids = MariadbGtids(last)
    assert parse_gtids(str(gtids)) == gtids


def test_a_set_of_mariadb_has_all_of_a_domain_up_to_its_last() -> None:
    gtids = parse_gtids("0-1-100,5-2-7")
    assert "0-1-100" in gtids
    assert "0-9-99" in gtids
    assert "0-1-101" not in gtids
    assert "5-2-8" not in gtids
    assert "1-1-1" not in gtids


@pytest.mark.parametrize(
    ("position", "other", "expected"),
    [
        ("0-1-5", "0-1-5", True),
        ("0-1-6", "0-2-5", True),
        ("0-1-4", "0-1-5", False),
        ("0-1-9", "0-1-5,1-1-1", False),
        ("0-1-9,1-1-1", "0-1-5,1-1-1", True),
        ("0-1-1", "0-0-0", True),
        ("0-0-0", "0-0-0", True),
        ("0-1-9 from 0-1-2", "0-1-9", True),
        (f"{SOURCE}:1-5", f"{SOURCE}:1-4", True),
        (f"{SOURCE}:1-5", f"{SOURCE}:1-6", False),
        (f"{SOURCE}:5", f"{SOURCE}:4", True),
        (f"{SOURCE}:4", f"{SOURCE}:5", False),
    ],
)
def test_a_position_is_past_another_when_it_is_so_in_every_domain(
    position: str, other: str, expected: bool
) -> None:
    assert is_past(position, other) == expected


def test_nothing_has_a_text_too() -> None:
    assert str(MariadbGtids.parse("")) == "0-0-0"
    assert MariadbGtids.parse("0-0-0") == MariadbGtids({})
    assert parse_gtids(str(MysqlGtids.parse(""))) == MysqlGtids({})


def test_a_position_tells_where_to_read_from_when_it_is_elsewhere() -> None:
    done, before = parse_gtids("0-1-9"), parse_gtids("0-1-4")
    assert str(Position(done, done)) == "0-1-9"
    assert str(Position(done, before)) == "0-1-9 from 0-1-4"
    assert Position.parse("0-1-9 from 0-1-4") == Position(done, before)
    assert Position.parse("0-1-9") == Position(done, done)


@pytest.mark.parametrize("text", ["16/B374D848", "0-1", "a-b-c", f"{SOURCE}:x"])
def test_the_position_of_another_database_is_refused(text: str) -> None:
    with pytest.raises(BadPosition, match="another database"):
        Position.parse(text)


def test_positions_of_two_kinds_of_servers_are_not_compared() -> None:
    with pytest.raises(BadPosition):
        is_past("0-1-5", f"{SOURCE}:1")
