"""What the columns of a join are called, and which must be equal."""

import pytest

from millstream.base.declared import BadDeclaration
from millstream.processing.operators.join_columns import (
    JoinKey,
    join_key,
    require_alike,
    require_key,
    right_columns,
)

ORDERS = ["order_id", "customer", "at"]
CUSTOMERS = ["id", "name", "at", "_change", "_order"]


def test_columns_are_joined_by_one_name_by_several_or_by_two() -> None:
    assert join_key("a", ["a", "b"], ["a", "c"]) == JoinKey(("a",), ("a",))
    assert join_key(["a", "b"], ["a", "b"], ["b", "a"]) == JoinKey(("a", "b"), ("a", "b"))
    assert join_key({"customer": "id"}, ORDERS, CUSTOMERS) == JoinKey(("customer",), ("id",))


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("name", "on='name' is no column of the left side (order_id, customer, at)"),
        ("customer", "on='customer' is no column of the right side"),
        ([], "on is empty"),
    ],
)
def test_a_column_that_is_not_there_is_named(on: str, reason: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        join_key(on, ORDERS, CUSTOMERS)
    assert reason in str(refused.value)


def test_a_right_column_whose_name_is_taken_gets_a_suffix() -> None:
    key = JoinKey(("customer",), ("id",))
    given = right_columns(ORDERS, CUSTOMERS, key)
    assert given == {"id": "id", "name": "name", "at": "at_right"}
    key = JoinKey(("At",), ("x",))
    assert right_columns(["ID", "At"], ["x", "id"], key) == {"x": "x", "id": "id_right"}


def test_a_column_that_both_sides_are_joined_on_by_one_name_is_there_once() -> None:
    key = JoinKey(("at", "customer"), ("at", "id"))
    assert right_columns(ORDERS, CUSTOMERS, key) == {"id": "id", "name": "name"}


def test_a_suffix_that_is_taken_too_is_refused() -> None:
    with pytest.raises(BadDeclaration, match="at and at_right are on both sides"):
        right_columns([*ORDERS, "at_right"], CUSTOMERS, JoinKey(("customer",), ("id",)))


def test_a_stream_and_a_static_frame_are_not_joined() -> None:
    with pytest.raises(BadDeclaration, match="read both alike"):
        require_alike(stream=True, table=False)


def test_a_table_is_joined_by_its_key() -> None:
    require_key(JoinKey(("customer",), ("id",)), ["id"])
    require_key(JoinKey(("a", "b"), ("a", "b")), ["b", "a"])
    require_key(JoinKey(("country",), ("country",)), ["country", "since"], versions="since")
    require_key(JoinKey(("country",), ("country",)), [])  # nobody knows


@pytest.mark.parametrize("table_key", [["id"], ["name", "region"], ["name", "since"]])
def test_a_table_that_is_joined_by_other_columns_than_its_key_is_refused(
    table_key: list[str],
) -> None:
    with pytest.raises(BadDeclaration, match="on=name is not the key of the table"):
        require_key(JoinKey(("customer",), ("name",)), table_key)
