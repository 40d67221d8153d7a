"""Keys and rows of stores without columns, for any schema: they sort, differ and come back."""

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.base.schema import Field, Scalar, Schema, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.values.key_encoder import KeyEncoder
from millstream.views.conditions import Rank, rank
from millstream.views.keys import key_values
from millstream.views.stores.redis.values import RedisRows
from millstream.views.stores.stored_keys import AFTER, StoredKeys, sortable_bound
from millstream.views.table_layout import TableLayout, has_map, view_layout
from tests.support.schema_strategies import rows, schemas

Row = dict[str, Any]
KEYS = schemas(elements_nullable=True).filter(
    lambda schema: not any(has_map(field.type) for field in schema)
)
# Arrays of structs have no order.
SORTED_KEYS = KEYS.filter(
    lambda schema: not any(re.search("ARRAY<.*STRUCT<", str(field.type)) for field in schema)
)


def two_of(schema: Schema) -> st.SearchStrategy[tuple[Schema, Row, Row]]:
    """Two keys; half of them differ only in their last parts, if at all."""
    pairs = st.tuples(rows(schema), rows(schema))
    last = schema.fields[-1].name
    near = pairs.map(lambda pair: (pair[0], pair[0] | {last: pair[1][last]}))
    return (pairs | near).map(lambda pair: (schema, *pair))


def layout_of(schema: Schema) -> TableLayout:
    return view_layout("v", schema, tuple(field.name for field in schema))


def ranked(layout: TableLayout, row: Row) -> Rank:
    return tuple(rank(value) for value in key_values(layout, row))


@settings(max_examples=30, deadline=None)
@given(SORTED_KEYS.flatmap(two_of))
def test_keys_sort_as_their_values_do(case: tuple[Schema, Row, Row]) -> None:
    schema, one, other = case
    layout = layout_of(schema)
    keys = StoredKeys(layout)
    by_value = ranked(layout, one), ranked(layout, other)
    by_bytes = keys.sortable(one), keys.sortable(other)
    assert (by_bytes[0] < by_bytes[1]) == (by_value[0] < by_value[1])
    assert (by_bytes[0] == by_bytes[1]) == (by_value[0] == by_value[1])


@settings(max_examples=30, deadline=None)
@given(KEYS.flatmap(two_of))
def test_keys_have_one_text_if_they_are_equal(case: tuple[Schema, Row, Row]) -> None:
    schema, one, other = case
    layout = layout_of(schema)
    keys = StoredKeys(layout)
    is_same = ranked(layout, one) == ranked(layout, other)
    assert (keys.text(one) == keys.text(other)) == is_same


@settings(max_examples=30, deadline=None)
@given(KEYS.flatmap(two_of), st.integers(1, 4))
def test_the_first_parts_of_a_key_bound_all_that_begin_with_them(
    case: tuple[Schema, Row, Row], parts: int
) -> None:
    schema, one, other = case
    layout = layout_of(schema)
    columns = layout.key_columns[:parts]
    assume(columns)
    found = StoredKeys(layout).sortable(other)
    values = list(zip(columns, key_values(layout, one), strict=False))
    first = sortable_bound(values)
    begins_so = ranked(layout, one)[: len(columns)] == ranked(layout, other)[: len(columns)]
    assert (first <= found < first + AFTER) == begins_so


def test_nan_is_after_all_numbers_and_null_after_that() -> None:
    layout = layout_of(Struct((Field("x", Scalar.DOUBLE), Field("y", Scalar.INT))))
    keys = StoredKeys(layout)
    numbers = [float("-inf"), -1.5, -5e-324, 0.0, 5e-324, 1.5, float("inf"), float("nan"), None]
    found = [keys.sortable({"x": number, "y": 1}) for number in numbers]
    assert found == sorted(found)
    assert len(set(found)) == len(found)
    assert keys.text({"x": -0.0, "y": 1}) == keys.text({"x": 0.0, "y": 1})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Scalar.STRING, "/home"),
        (Scalar.STRING, "Ägypten"),
        (Scalar.STRING, "7"),
        (Scalar.STRING, "null"),
        (Scalar.STRING, '"quoted"'),
        (Scalar.STRING, " {"),
        (Scalar.STRING, ""),
        (Scalar.BIGINT, -(1 << 63)),
        (Scalar.TINYINT, 0),
        (Scalar.BOOLEAN, True),
    ],
)
def test_a_text_is_what_the_key_of_a_record_is(kind: Scalar, value: Any) -> None:
    schema = Struct((Field("x", kind),))
    text = StoredKeys(layout_of(schema)).text({"x": value})
    assert text == KeyEncoder(schema, ("x",)).encode({"x": value})


def test_no_text_is_taken_for_a_key_that_is_null() -> None:
    keys = StoredKeys(layout_of(Struct((Field("x", Scalar.STRING),))))
    texts = ["", "null", "{}", '"', '"null"', " {}"]
    found = [keys.text({"x": text}) for text in [*texts, None]]
    assert len(set(found)) == len(found)


@settings(max_examples=30, deadline=None)
@given(schemas(elements_nullable=True).flatmap(lambda one: st.tuples(st.just(one), rows(one))))
def test_a_row_in_redis_comes_back_as_it_was(case: tuple[Schema, Row]) -> None:
    schema, row = case
    (as_arrow_gives_it,) = pa.Table.from_pylist([row], nullable_arrow_schema(schema)).to_pylist()
    codec = RedisRows(schema)
    assert codec.decode(codec.encode(as_arrow_gives_it)) == row
