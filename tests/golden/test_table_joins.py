"""Kafka Streams' joins of tables, step by step, as its documentation and its own tests have them.

One key, one record for each step; "-" is a tombstone, "." nothing. The first fifteen steps are the
table of its developer guide; the others bring records whose timestamps are older than those before
them, which a table that is not versioned takes as they come: so do we.

Differences, none of which a single record shows:
  - Of a batch we emit the net change: a row that comes and goes in it is not seen. Kafka Streams
    does the same while its cache is on, which is its default.
  - Its guide writes null also where there was no row to delete. No record is sent there, as its
    tests show: "." here.
  - Its results have timestamps, the greater one of both sides; a table of ours has none.
"""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.processing.operators.table_join_plan import KEPT
from tests.support.joined_tables import JoinedTables, plan_of, side_of

STEPS = """
    left   right   inner  left     outer
    -      .       .      .        .
    .      -       .      .        .
    A      .       .      A-null   A-null
    .      a       A-a    A-a      A-a
    B      .       B-a    B-a      B-a
    .      b       B-b    B-b      B-b
    -      .       -      -        null-b
    .      -       .      .        -
    C      .       .      C-null   C-null
    .      c       C-c    C-c      C-c
    .      -       -      C-null   C-null
    -      .       .      -        -
    .      -       .      .        .
    .      d       .      .        null-d
    D      .       D-d    D-d      D-d
    -      .       -      -        null-d
    .      -       .      .        -
    .      e       .      .        null-e
    E      .       E-e    E-e      E-e
    -      .       -      -        null-e
    .      -       .      .        -
    F      .       .      F-null   F-null
    .      f       F-f    F-f      F-f
"""
HOWS = {"inner": 2, "left": 3, "full": 4}  # and the column of its answers


def steps(how: str) -> list[tuple[str, str, str]]:
    rows = [line.split() for line in STEPS.strip().splitlines()[1:]]
    return [(row[0], row[1], row[HOWS[how]]) for row in rows]


def table(column: str) -> StructType:
    return StructType([StructField("id", LongType()), StructField(column, StringType())])


def changes(column: str, value: str, order: int) -> list[dict[str, object]]:
    if value == ".":
        return []
    if value == "-":
        return [{"id": 0, CHANGE: DELETE, ORDER: order}]
    return [{"id": 0, column: value, CHANGE: UPSERT, ORDER: order}]


def shown(found: list[dict[str, object]]) -> str:
    if not found:
        return "."
    (row,) = found
    if row[CHANGE] == DELETE:
        return "-"
    return "-".join(str(row[name] or "null") for name in ("upper", "lower"))


@pytest.mark.parametrize("how", HOWS)
def test_every_step_of_kafka_streams_table_joins_has_the_same_answer(how: str) -> None:
    left = side_of(table("upper"), key=["id"], on=["id"], kept=KEPT[how][0])
    right = side_of(table("lower"), key=["id"], on=["id"], kept=KEPT[how][1])
    joined = JoinedTables(plan_of(left, right, how))
    for number, (upper, lower, expected) in enumerate(steps(how), start=1):
        found = joined.take(changes("upper", upper, number), changes("lower", lower, number))
        assert shown(found) == expected, f"step {number}"
