"""How values are ordered: as Spark sorts them, and the other way round."""

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from millstream.processing.operators.value_order import (
    RowOrder,
    descending_rank_of,
    rank_of,
    with_plain_zeros,
)

# Each in ascending order.
COLUMNS: list[list[Any]] = [
    [None, -(2**63), -1, 0, 2**63 - 1],
    [None, False, True],
    [None, -math.inf, -1e300, 0.0, 5e-324, math.inf, math.nan],
    [None, "", "Z", "a", "ab", "\uffff", "\U0001f600"],
    [None, b"", b"\x00", b"\xff"],
    [None, Decimal("-" + "9" * 38), Decimal("0.1"), Decimal("9" * 38)],
    [None, date(1969, 12, 31), date(2026, 7, 1)],
    [None, [], [None], [1], [1, 0], [2]],
    [None, {"b": None, "a": 9}, {"b": 1, "a": 0}, {"b": 1, "a": 3}],
]


@pytest.mark.parametrize("ascending", COLUMNS, ids=repr)
def test_values_have_one_order_and_its_reverse(ascending: list[Any]) -> None:
    descending = ascending[::-1]
    assert repr(sorted(descending, key=rank_of)) == repr(ascending)
    assert repr(sorted(ascending, key=descending_rank_of)) == repr(descending)


@pytest.mark.parametrize("rank", [rank_of, descending_rank_of])
def test_zeros_are_equal_and_so_is_what_is_not_a_number(rank: Any) -> None:
    assert rank(0.0) == rank(-0.0)
    assert rank(math.nan) == rank(-math.nan)
    assert rank("a") == rank("a") != rank("b")


def test_rows_are_ordered_column_by_column() -> None:
    rows = [(1, "a"), (2, "a"), (2, "b"), (None, "b")]
    assert sorted(rows, key=RowOrder((True, False))) == [(2, "a"), (2, "b"), (1, "a"), (None, "b")]


def test_a_zero_within_a_value_is_plain_too() -> None:
    assert repr(with_plain_zeros({"at": [-0.0, None]})) == "{'at': [0.0, None]}"
