"""Whole rows through the steps of a join of tables: nulls, values of keys, too narrow keys."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from millstream.base.changes import CHANGE, DELETE, UPSERT
from millstream.processing.operators.changelog_state import KeyNamesTwoRows
from millstream.processing.operators.table_join_plan import KEPT
from tests.support.joined_tables import JoinedTables, plan_of, side_of

LEFT = StructType([StructField("id", LongType()), StructField("rate", DecimalType(8, 3))])
RIGHT = StructType([StructField("name", StringType()), StructField("level", DecimalType(8, 3))])


def joined(how: str) -> JoinedTables:
    left = side_of(LEFT, key=["id"], on=["rate"], kept=KEPT[how][0])
    right = side_of(RIGHT, key=["name"], on=["level"], kept=KEPT[how][1])
    return JoinedTables(plan_of(left, right, how))


def row(id: int | None, name: str | None) -> tuple[int | None, str | None, str]:
    return id, name, UPSERT


def gone(id: int | None, name: str | None) -> tuple[int | None, str | None, str]:
    return id, name, DELETE


def shown(changes: list[dict[str, Any]]) -> set[tuple[int | None, str | None, str]]:
    return {(change["id"], change["name"], change[CHANGE]) for change in changes}


def test_nulls_match_nothing() -> None:
    left, right = {"id": 1, "rate": None}, {"name": "ada", "level": None}
    assert joined("inner").take([left], [right]) == []
    assert shown(joined("full").take([left], [right])) == {row(1, None), row(None, "ada")}


def test_a_row_whose_foreign_key_becomes_null_leaves_its_pair() -> None:
    for how, alone in (("inner", set()), ("left", {row(1, None)})):
        tables = joined(how)
        tables.take([{"id": 1, "rate": Decimal(2)}], [{"name": "ada", "level": Decimal(2)}])
        changes = tables.take([{"id": 1, "rate": None}])
        assert shown(changes) == {gone(1, "ada")} | alone


def test_decimals_match_by_value() -> None:
    left, right = {"id": 1, "rate": Decimal("1.5")}, {"name": "ada", "level": Decimal("1.500")}
    assert shown(joined("inner").take([left], [right])) == {row(1, "ada")}


def test_a_key_that_names_two_rows_is_refused() -> None:
    tables = joined("inner")
    tables.plan = replace(tables.plan, key=("name",))
    left = [{"id": number, "rate": Decimal(2)} for number in (1, 2)]
    with pytest.raises(KeyNamesTwoRows, match=r"two rows with the key \{'name': 'ada'\}"):
        tables.take(left, [{"name": "ada", "level": Decimal(2)}])


def test_rows_that_were_kept_before_a_column_came_have_null_in_it() -> None:
    tables = joined("inner")
    tables.take([{"id": 1, "rate": Decimal(2)}])
    wider = (*tables.plan.left.columns, StructField("note", StringType()))
    tables.plan = replace(tables.plan, left=replace(tables.plan.left, columns=wider))
    (change,) = tables.take([], [{"name": "ada", "level": Decimal(2)}])
    assert (change["id"], change["note"]) == (1, None)


def test_a_table_may_have_columns_of_any_name() -> None:
    named = StructType(
        [*LEFT, StructField("_on_hold", StringType()), StructField("_coming", LongType())]
    )
    left = side_of(named, key=["id"], on=["rate"], kept=False)
    right = side_of(RIGHT, key=["name"], on=["level"], kept=False)
    row = {"id": 1, "rate": Decimal(2), "_on_hold": "yes", "_coming": 7}
    tables = JoinedTables(plan_of(left, right, "inner"))
    (change,) = tables.take([row], [{"name": "ada", "level": Decimal(2)}])
    assert (change["_on_hold"], change["_coming"]) == ("yes", 7)
