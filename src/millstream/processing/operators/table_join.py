"""Joins of two tables that are kept up to date: changes in, the net change of each batch out.

Both inputs are changelogs (changelog.py), and the answer is one. Updates and deletes on either
side, foreign keys, many to many, rows whose foreign key changes. On a stream the join is kept in
state (table_join_stream.py); of static frames Spark joins the latest rows. Nothing here waits for
time: a table has none, and its state is as large as both tables.
"""

from functools import reduce
from operator import and_
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE, ORDER, UPSERT
from millstream.processing.operators.changelog import latest
from millstream.processing.operators.changelog_columns import Names, mark_key, quoted
from millstream.processing.operators.join_columns import On
from millstream.processing.operators.table_frames import table_of
from millstream.processing.operators.table_join_plan import (
    BadTableJoin,
    JoinPlan,
    named_apart,
    names,
    plan_join,
    with_common_types,
)
from millstream.processing.operators.table_join_stream import stream_join

__all__ = ["BadTableJoin", "tables"]

How = Literal["inner", "left", "right", "full"]


def tables(
    left: DataFrame,
    right: DataFrame,
    on: On,
    *,
    how: How = "inner",
    left_key: Names | None = None,
    right_key: Names | None = None,
    key: Names | None = None,
) -> DataFrame:
    """The changelog of the join of two tables.

    `on` names columns that both have, which become one, or maps the left table's to the right
    one's. Nulls in them match nothing. `left_key` and `right_key` name a row of each side; frames
    of tables know theirs. `key` names a row of the answer: the keys of both if not given. An
    outer join's row without a match has nulls for the other side, also in its key. A column of
    the right table whose name the left one has too gets `_right` behind it.
    """
    left, left_key = table_of(left, left_key, what="left_key")
    right, right_key = table_of(right, right_key, what="right_key")
    right, on, right_key = named_apart(left, right, on, right_key)
    plan = plan_join(left, right, on, how=how, keys=(left_key, right_key), key=key)
    join = stream_join if left.isStreaming else _join_latest
    joined = join(with_common_types(left, plan), with_common_types(right, plan), plan)
    return mark_key(joined, plan.key)


def _join_latest(left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
    lefts = latest(left, plan.left.key)
    rights = latest(right, plan.right.key)
    renamed = rights.toDF(*(_right(name) for name in rights.columns))
    joined = lefts.join(renamed, _matches(plan), plan.how)
    return joined.select(
        *_columns(plan), F.lit(UPSERT).alias(CHANGE), F.lit(0).cast("bigint").alias(ORDER)
    )


def _matches(plan: JoinPlan) -> Column:
    compared = zip(plan.left.on, plan.right.on, plan.types, strict=True)
    conditions = [
        quoted(name).cast(type_) == quoted(_right(other)).cast(type_)
        for name, other, type_ in compared
    ]
    return reduce(and_, conditions)


def _columns(plan: JoinPlan) -> list[Column]:
    lefts = set(names(plan.left.columns))
    return [
        F.coalesce(quoted(name), quoted(_right(name))).alias(name)
        if name in plan.merged
        else (quoted(name) if name in lefts else quoted(_right(name)).alias(name))
        for name in names(plan.columns)
    ]


def _right(name: str) -> str:
    """So that no two columns of the join are called the same."""
    return f"_right {name}"
