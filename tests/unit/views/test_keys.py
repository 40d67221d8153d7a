"""Keys and the bounds of ranges, as callers give them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millstream.schemas.declaration import schema_of
from millstream.views.keys import fitted_bound, fitted_key, key_values
from millstream.views.store import BadQuestion
from millstream.views.table_layout import view_layout

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
DDL = "window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, url STRING, tags ARRAY<INT>, count BIGINT"
WINDOWS = view_layout("counts", schema_of(DDL), ("window", "url"))
URLS = view_layout("counts", schema_of(DDL), ("url",))
TAGS = view_layout("counts", schema_of(DDL), ("tags",))


@pytest.mark.parametrize("given", ["/", ("/",), {"url": "/"}, ({"url": "/"},)])
def test_a_key_of_one_column_is_its_value(given: Any) -> None:
    assert fitted_key(URLS, given) == {"url": "/"}


@pytest.mark.parametrize(
    "given",
    [
        ((NOON, LATER), "/"),
        ({"start": NOON, "end": LATER}, "/"),
        {"url": "/", "window": (NOON, LATER)},
        {"window": {"start": NOON, "end": LATER}, "url": "/"},
    ],
)
def test_a_key_of_several_columns_comes_by_place_or_by_name(given: Any) -> None:
    key = fitted_key(WINDOWS, given)
    assert key_values(WINDOWS, key) == [NOON, LATER, "/"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("/", "is read by window, url: 2 values, not 1"),
        ((1, 2, 3), "2 values, not 3"),
        (((NOON,), "/"), "has 2 parts, 1 are given"),
        (((NOON, LATER), 7), "the key's field `url`: expected STRING, found 7"),
        (((NOON, "late"), "/"), r"the key's field `window\.end`"),
        ({"url": "/"}, "2 values, not 1"),
    ],
)
def test_a_key_that_does_not_fit_is_told(given: Any, message: str) -> None:
    with pytest.raises(BadQuestion, match=message):
        fitted_key(WINDOWS, given)


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        (None, {}),
        (((NOON, LATER), "/"), {"window.start": NOON, "window.end": LATER, "url": "/"}),
        (((NOON, LATER),), {"window.start": NOON, "window.end": LATER}),
        (((NOON,),), {"window.start": NOON}),
        ({"window": {"start": NOON}}, {"window.start": NOON}),
        (((NOON, LATER), None), {"window.start": NOON, "window.end": LATER, "url": None}),
        ((None,), {"window.start": None, "window.end": None}),
    ],
)
def test_a_bound_names_the_first_parts_of_a_key(given: Any, bound: dict[str, Any]) -> None:
    found = fitted_bound(WINDOWS, given)
    assert {column.name: value for column, value in found} == bound


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "2 values or less, not 0"),
        ((1, 2, 3), "2 values or less, not 3"),
        (((NOON,), "/"), "has 2 parts, 1 are given"),
        (((),), "has 2 parts, 0 are given"),
        ((NOON,), "give its parts by place or by name"),
        (({"end": NOON},), "give its parts by place or by name"),
        (((7,),), r"`window\.start`: expected TIMESTAMP"),
    ],
)
def test_a_bound_that_does_not_fit_is_told(given: Any, message: str) -> None:
    with pytest.raises(BadQuestion, match=message):
        fitted_bound(WINDOWS, given)


def test_an_array_bounds_no_range() -> None:
    with pytest.raises(BadQuestion, match="tags is an array, which has no order"):
        fitted_bound(TAGS, ([1],))
