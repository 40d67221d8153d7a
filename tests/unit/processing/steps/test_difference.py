"""Expected and found rows, compared and shown."""

from datetime import UTC, datetime

import pytest

from millstream.processing.steps.difference import SHOWN_ROWS_MAX, difference, is_same
from millstream.processing.steps.moments import moment
from millstream.processing.steps.results import Row


def test_the_same_rows_in_another_order_are_no_difference() -> None:
    assert difference([{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 1}]) == ""


def test_a_row_that_is_there_twice_is_a_difference() -> None:
    assert "+  1  there, and not expected" in difference([{"n": 1}], [{"n": 1}, {"n": 1}])


def test_rows_stand_in_a_table_with_what_is_wrong() -> None:
    window = {"start": moment("12:00"), "end": moment("12:01")}
    expected: list[Row] = [
        {"window": window, "url": "/a", "clicks": 2},
        {"window": window, "url": "/b"},
    ]
    found = [{"window": window, "url": "/a", "clicks": 3}]
    assert difference(expected, found).splitlines() == [
        "1 row there, 2 rows expected:",
        "",
        "   window          url  clicks",
        "-  12:00 to 12:01  /a   2                 expected, and not there",
        "+  12:00 to 12:01  /a   3                 there, and not expected",
        "-  12:00 to 12:01  /b   (no such column)  expected, and not there",
    ]


def test_of_many_rows_only_those_that_differ_are_shown() -> None:
    same = [{"n": number} for number in range(SHOWN_ROWS_MAX + 1)]
    told = difference([*same, {"n": -1}], same).splitlines()
    assert told[2:] == ["   n", "-  -1  expected, and not there"]


def test_too_many_differences_are_counted() -> None:
    told = difference([], [{"n": number} for number in range(SHOWN_ROWS_MAX + 2)])
    assert told.endswith("... and 2 rows more")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (0.3, 0.31, False),
        (float("nan"), float("nan"), True),
        (1, True, False),
        ({"a": [1.0, 2]}, {"a": [1.0, 2]}, True),
        ({"a": None}, {}, False),
        (datetime(2026, 1, 1, tzinfo=UTC), moment("00:00"), True),
    ],
)
def test_values_are_the_same_but_for_rounding(one: object, other: object, same: bool) -> None:
    assert is_same(one, other) is same
