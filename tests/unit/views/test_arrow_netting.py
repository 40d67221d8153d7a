"""Changes netted as tables of Arrow come to the same as changes netted row by row."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.declaration import schema_of
from millstream.views.netting import BadChange
from millstream.views.stores.arrow_netting import netted_table
from millstream.views.table_layout import NullKey, view_layout
from tests.contracts.view_store_contract import rows

DDL = "a INT, b STRING, n INT, _change STRING, _order BIGINT"
LAYOUT = view_layout("v", schema_of(DDL), ("a", "b"))

keys = st.tuples(st.integers(0, 2), st.sampled_from(["x", "y", None]))
a_change = st.tuples(
    keys,
    st.integers(0, 3),
    st.sampled_from(["upsert", "delete", None]),
    st.one_of(st.none(), st.integers(0, 3)),
)


def flat(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(*key, n, change, order) for key, n, change, order in found]


def rank(place: int, change: str | None, order: int | None) -> tuple[int, bool, int]:
    """Later is greater: by order, of one order what comes after what goes, then by place."""
    return (-1 if order is None else order, change != "delete", place)


@settings(deadline=None)
@given(st.lists(a_change, max_size=30))
def test_the_last_change_of_each_key_counts(found: list[Any]) -> None:
    last: dict[Any, Any] = {}
    for place, (key, n, change, order) in enumerate(found):
        at = rank(place, change, order)
        if key not in last or last[key][0] < at:
            last[key] = (at, n, change)
    netted = netted_table(LAYOUT, rows(DDL, *flat(found)))
    put = {(row["a"], row["b"]): row["n"] for row in netted.upserts.to_pylist()}
    gone = [(row["a"], row["b"]) for row in netted.deletes.to_pylist()]
    assert put == {key: n for key, (_, n, change) in last.items() if change != "delete"}
    assert sorted(gone, key=str) == sorted(
        (key for key, (_, _, change) in last.items() if change == "delete"), key=str
    )
    assert netted.is_empty == (not found)


@settings(deadline=None)
@given(st.permutations([(1, "insert"), (1, "retract"), (2, "insert"), (3, "retract")]))
def test_what_is_taken_back_cancels_what_is_put_in_any_order(found: list[Any]) -> None:
    table = rows(DDL, *((1, "x", n, change, None) for n, change in found))
    netted = netted_table(LAYOUT, table)
    assert [row["n"] for row in netted.upserts.to_pylist()] == [2]
    assert netted.deletes.num_rows == 0


def test_lists_can_be_keys() -> None:
    ddl = "k ARRAY<INT>, n INT"
    layout = view_layout("v", schema_of(ddl), ("k",))
    table = rows(ddl, ([1], 1), ([1, None], 2), ([], 3), ([1], 4))
    found = netted_table(layout, table).upserts.to_pylist()
    assert [(row["k"], row["n"]) for row in found] == [([1, None], 2), ([], 3), ([1], 4)]


def test_a_batch_that_is_narrower_than_the_view_is_widened() -> None:
    layout = view_layout("v", schema_of("a BIGINT, n DOUBLE"), ("a",))
    netted = netted_table(layout, rows("n FLOAT, a INT", (0.5, 1)))
    assert [str(field.type) for field in netted.upserts.schema] == ["int64", "double"]


def test_a_key_that_is_null_in_all_its_parts_is_refused() -> None:
    with pytest.raises(NullKey, match="1 rows have no key"):
        netted_table(LAYOUT, rows(DDL, (None, None, 1, "upsert", None), (None, "x", 1, None, 1)))


def test_a_word_that_is_no_change_is_refused() -> None:
    with pytest.raises(BadChange, match="the change 'replace'"):
        netted_table(LAYOUT, rows(DDL, (1, "x", 1, "replace", None)))
