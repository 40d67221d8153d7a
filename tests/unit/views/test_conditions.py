"""Conditions and orders: what they mean, and what is refused."""

import contextlib
import math
from decimal import Decimal
from time import thread_time
from typing import Any

import pytest

from millstream.schemas.declaration import schema_of
from millstream.views.conditions import (
    VALUES_MAX,
    are_met,
    conditions_of,
    orders_of,
    rank,
    require_limit,
    split_condition,
    text_after,
)
from millstream.views.store import BadQuestion
from millstream.views.table_layout import view_layout

DDL = """
    url STRING, count BIGINT, price DECIMAL(6, 2), x DOUBLE, w STRUCT<start: INT>, tags ARRAY<INT>,
    facts MAP<STRING, INT>, `a in` INT, `b <` INT
"""
LAYOUT = view_layout("counts", schema_of(DDL), ("url",))
ROW = {
    "url": "/shop/1",
    "count": 5,
    "price": Decimal("9.50"),
    "x": math.nan,
    "w": {"start": 7},
    "tags": [1, 2],
    "facts": None,
    "a in": 1,
    "b <": None,
}


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"url": "/shop/1"},
        {"url =": "/shop/1", "count>=": 5, "count <= ": 5},
        {" count != ": 4},
        {"count !=": None},
        {"b <": None},
        {"price <": 10},
        {"price >": Decimal("9.4")},
        {"w.start": 7},
        {"url in": ["/", "/shop/1"]},
        {"b < IN": [None, 2]},
        {"url starts with": "/shop/"},
        {"url Starts  With": ""},
        {"a in": 1},
        {"a in in": [1]},
        {"tags": [1, 2]},
        {"tags in": [[], [1, 2]]},
        {"x": math.nan},
        {"x >": math.inf},
    ],
)
def test_a_row_meets_its_conditions(where: dict[str, Any]) -> None:
    assert are_met(conditions_of(LAYOUT, where), ROW)


@pytest.mark.parametrize(
    "where",
    [
        {"url": "/shop"},
        {"count": None},
        {"count >": 5},
        {"b < >": 0},
        {"b < <": 0},
        {"b < !=": None},
        {"url in": []},
        {"url starts with": "/x"},
        {"url": "/shop/1", "count": 6},
        {"x <": math.inf},
        {"tags": [2, 1]},
    ],
)
def test_a_row_does_not_meet_others(where: dict[str, Any]) -> None:
    assert not are_met(conditions_of(LAYOUT, where), ROW)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"user": 1}, "view counts has no column user to compare: url, count"),
        ({"w": {"start": 1}}, "has no column w to compare"),
        ({'url" OR 1=1 --': 1}, "has no column"),
        ({"count >>": 1}, "has no column count > to compare.*Operators are =, !=, <"),
        ({"count": "many"}, "`count`: expected BIGINT, found 'many'"),
        ({"count >": None}, "count > null is never true"),
        ({"url starts with": None}, "url starts with null is never true"),
        ({"count starts with": 1}, "count is BIGINT, and no text"),
        ({"url in": "/"}, "url in '/': give a list of values"),
        ({"url in": 7}, "url in 7: give a list of values"),
        ({"count in": [1, "many"]}, "`count`: expected BIGINT"),
        ({"tags <": [1]}, "tags is an array, which has no order"),
        ({"facts": {}}, "facts is a map, which has no comparison"),
    ],
)
def test_a_condition_that_cannot_be_is_told(where: dict[str, Any], message: str) -> None:
    with pytest.raises(BadQuestion, match=message):
        conditions_of(LAYOUT, where)


@pytest.mark.parametrize("end", ["x", "<", " in", " starts", " with", ""])
def test_the_time_to_read_a_condition_grows_with_its_length_only(end: str) -> None:
    text = "url" + " " * 60_000 + end
    begun = thread_time()
    with contextlib.suppress(BadQuestion):
        conditions_of(LAYOUT, {text: []})
    assert thread_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("", "=")),
        ("in", ("in", "=")),
        ("starts with", ("starts with", "=")),
        ("<=", ("<", "=")),
        ("<", ("<", "=")),
        ("a b", ("a b", "=")),
        ("a<=", ("a", "<=")),
        ("a ==", ("a =", "=")),
        ("begin", ("begin", "=")),
        ("a starts in", ("a starts", "in")),
        ("a\nSTARTS\t with ", ("a", "starts with")),
    ],
)
def test_a_condition_ends_with_its_operator(text: str, parts: tuple[str, str]) -> None:
    assert split_condition(text) == parts


def test_values_to_compare_with_have_a_limit() -> None:
    conditions_of(LAYOUT, {"count in": range(VALUES_MAX - 1), "url": "/"})
    with pytest.raises(BadQuestion, match=f"{VALUES_MAX + 1} values to compare with"):
        conditions_of(LAYOUT, {"count in": range(VALUES_MAX), "url": "/"})


def test_rows_come_by_key_in_the_end() -> None:
    orders = orders_of(LAYOUT, ["-count", "w.start"])
    assert [(one.column.name, one.is_descending) for one in orders] == [
        ("count", True),
        ("w.start", False),
        ("url", False),
    ]
    assert [one.column.name for one in orders_of(LAYOUT, "price")] == ["price", "url"]


@pytest.mark.parametrize("name", ["url DESC; DROP TABLE rows_1", "w", "tags", "facts", ""])
def test_an_order_that_cannot_be_is_told(name: str) -> None:
    with pytest.raises(BadQuestion, match="view counts"):
        orders_of(LAYOUT, [name])


@pytest.mark.parametrize("limit", [-1, 1.5, "10", True])
def test_a_limit_is_a_number_of_rows(limit: Any) -> None:
    require_limit(0)
    require_limit(None)
    with pytest.raises(BadQuestion, match="a number of rows, or None for all"):
        require_limit(limit)


def test_values_come_before_nan_and_nan_before_null() -> None:
    values = [None, math.nan, math.inf, -1.0, 2]
    assert repr(sorted(values, key=rank)) == "[-1.0, 2, inf, nan, None]"


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("a", "b"),
        ("az", "a{"),
        ("a\U0010ffff", "b"),
        ("a\ud7ff", "a\ue000"),
        ("", None),
        ("\U0010ffff\U0010ffff", None),
    ],
)
def test_a_prefix_ends_where_the_next_text_begins(prefix: str, after: str | None) -> None:
    assert text_after(prefix) == after
