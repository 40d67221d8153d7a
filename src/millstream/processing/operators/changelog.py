"""Changelogs as DataFrames: a table's columns, `_change` and `_order` (base/changes.py).

latest       the table that a static changelog describes
retracting   upserts and deletes as whole rows that go and come
upserting    the way back: the net change of each key
where        the rows that meet a condition; one that no longer does is deleted
aggregate    counts, sums, least and greatest values, that follow rows which change and go
distinct     the values that some row has
top          the first rows of each group, in an order

They work on static frames and on streams, and start no query. What columns are made of others is
Spark's: `select` and `withColumn` are as right on a changelog as on a table, while the key stays.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from millstream.base.changes import (
    CHANGE,
    CHANGES,
    COMING,
    DELETE,
    GOING,
    INSERT,
    ORDER,
    RETRACT,
    UPSERT,
)
from millstream.processing.operators.aggregate_state import OrderedAggregate, TableAggregate
from millstream.processing.operators.aggregates import Aggregate
from millstream.processing.operators.changelog_columns import (
    BadChangelog,
    Names,
    columns_of,
    has_no_order,
    is_coming,
    key_of,
    key_or_marked,
    mark_key,
    order_of,
    quoted,
    require_columns,
)
from millstream.processing.operators.changelog_state import net_changes
from millstream.processing.operators.changelog_stream import (
    TopPlan,
    aggregated,
    changelog_schema,
    first_rows,
    net_stream,
    replaced_stream,
)
from millstream.processing.operators.row_changes import CHANGE_FIELDS
from millstream.processing.operators.window_types import result_type

__all__ = [
    "CHANGE",
    "CHANGES",
    "COMING",
    "DELETE",
    "GOING",
    "INSERT",
    "ORDER",
    "RETRACT",
    "UPSERT",
    "BadChangelog",
    "aggregate",
    "columns_of",
    "distinct",
    "key_of",
    "latest",
    "mark_key",
    "net_changes",
    "quoted",
    "retracting",
    "top",
    "upserting",
    "where",
]

# Where a row is among those of its key, the last one first: no name of an application.
PLACE = "place "


def latest(frame: DataFrame, key: Names | None = None) -> DataFrame:
    """The table that a static changelog describes: the last row of each key."""
    names = key_or_marked(frame, key)
    if frame.isStreaming:
        raise BadChangelog("latest() is of static frames: a stream has no last row")
    of_key = Window.partitionBy(*map(quoted, names)).orderBy(
        order_of(frame).desc(), is_coming(frame).desc()
    )
    placed = frame.withColumn(PLACE, F.row_number().over(of_key))
    last = placed.filter(quoted(PLACE) == 1)
    return last.filter(is_coming(last)).select(*map(quoted, columns_of(frame)))


def retracting(frame: DataFrame, key: Names | None = None) -> DataFrame:
    """Whole rows that go (retract) and come (insert), for what can only add and take away."""
    names = key_or_marked(frame, key)
    if frame.isStreaming:
        return mark_key(replaced_stream(frame, names), names)
    return mark_key(_changes(latest(frame, names), INSERT), names)


def upserting(frame: DataFrame, key: Names | None = None) -> DataFrame:
    """One upsert or delete of each key, of however many changes a batch has of it.

    Of a stream it keeps nothing: a delete is passed on also when the key was never there.
    """
    names = key_or_marked(frame, key)
    if frame.isStreaming:
        return mark_key(net_stream(frame, names), names)
    netted = net_stream(frame, names)
    return mark_key(netted.filter(is_coming(netted)), names)


def where(frame: DataFrame, condition: Column | str, key: Names | None = None) -> DataFrame:
    """The rows of a table that meet a condition; keeps nothing.

    Spark's own `filter` would lose the change by which a row stops to meet it, and every delete.
    Here such a change is a delete, also of a row that was never among those that do.
    """
    names = key_or_marked(frame, key)
    meets = F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))
    said = F.coalesce(CHANGE, F.lit(UPSERT)) if CHANGE in frame.columns else F.lit(UPSERT)
    told = frame.withColumn(CHANGE, F.when((said == UPSERT) & ~meets, DELETE).otherwise(said))
    by_key = said.isin(UPSERT, DELETE)
    return _with_bare_deletes(told.filter(by_key | meets), names)


def aggregate(
    frame: DataFrame,
    *,
    by: Names,
    of: Mapping[str, Aggregate],
    key: Names | None = None,
) -> DataFrame:
    """Aggregates of a table's rows, by group: the changelog of the results.

    `of` gives each result a name: `windows.count()`, `sum`, `avg`, `min`, `max`, `count_distinct`
    or `collect` of a column, whose values are then in ascending order. When a row is updated or
    deleted, its old values are taken back; a group without rows is deleted. `key` names a row of
    `frame`; frames of tables know theirs. Results of a stream are those of its latest rows, to the
    last digit.
    """
    names = key_or_marked(frame, key)
    groups = require_columns(frame, by, what="by")
    if not groups:
        raise BadChangelog("by= names no column: for one row of all, group by a constant column")
    kept = {name: _table_aggregate(name, one) for name, one in of.items()}
    _require_apart(groups, kept)
    schema = _result_schema(frame, groups, kept)
    needed = _only(frame, (*names, *groups, *(one.column for one in kept.values() if one.column)))
    return mark_key(aggregated(needed, names, groups, kept, schema), groups)


def distinct(frame: DataFrame, columns: Names, key: Names | None = None) -> DataFrame:
    """The values of these columns that some row has: the changelog of a table whose key they are.

    They come with the first row that has them and go with the last.
    """
    return aggregate(frame, by=columns, of={}, key=key)


def top(
    frame: DataFrame,
    count: int,
    *,
    order_by: Names,
    by: Names = (),
    key: Names | None = None,
    rank: str | None = None,
) -> DataFrame:
    """The first rows of each group `by`, or of all: the changelog of a table with the same key.

    `order_by` names columns, "-amount" the greatest first; nulls are less than all else, and rows
    that are equal come by their key. `rank` names a column for the place of each, from 1: then a
    new first row changes all of them. When one goes, the next comes up.
    """
    names = key_or_marked(frame, key)
    order = [order_by] if isinstance(order_by, str) else list(order_by)
    plan = TopPlan(
        count=count,
        by=require_columns(frame, by, what="by"),
        order_by=require_columns(frame, [one.removeprefix("-") for one in order], what="order_by"),
        descending=tuple(one.startswith("-") for one in order),
        key=names,
        rank=rank,
    )
    schema = _top_schema(frame, plan)
    return mark_key(first_rows(frame, plan, schema), names)


def _only(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """State holds these columns, and no change of another one is looked at."""
    signs = [name for name in (CHANGE, ORDER) if name in frame.columns]
    return frame.select(*map(quoted, dict.fromkeys((*names, *signs))))


def _with_bare_deletes(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """A delete has its key alone."""
    others = [name for name in columns_of(frame) if name not in key]
    comes = F.col(CHANGE) != DELETE
    return frame.withColumns({name: F.when(comes, quoted(name)) for name in others})


def _result_schema(
    frame: DataFrame, by: tuple[str, ...], of: Mapping[str, TableAggregate]
) -> StructType:
    """All may be null: a delete has only its key."""
    results = [StructField(name, _result_type(frame, name, one)) for name, one in of.items()]
    groups = [StructField(name, frame.schema[name].dataType) for name in by]
    for group in groups:
        _require_order(f"by={group.name!r}", group.dataType)
    return StructType([*groups, *results, *CHANGE_FIELDS])


def _table_aggregate(name: str, one: Aggregate) -> TableAggregate:
    if isinstance(one, TableAggregate):
        return one
    raise BadChangelog(
        f"{name}: {one.function} goes by the time of events, and a table has none: take min or max "
        "of a column, or changelog.top"
    )


def _require_apart(groups: Sequence[str], results: Mapping[str, object]) -> None:
    taken = {name.lower() for name in (*groups, CHANGE, ORDER)}
    for name in results:
        if name.lower() in taken:
            raise BadChangelog(f"of={name!r}: the answer has a column {name} already: rename it")
        taken.add(name.lower())


def _result_type(frame: DataFrame, name: str, one: TableAggregate) -> DataType:
    if one.column is None:
        return LongType()
    (column,) = require_columns(frame, one.column, what=name)
    given = frame.schema[column].dataType
    if isinstance(one, OrderedAggregate):
        _require_order(name, given)
    return result_type(one, given)


def _top_schema(frame: DataFrame, plan: TopPlan) -> StructType:
    if plan.count < 1:
        raise BadChangelog(f"top({plan.count}): at least one row")
    if not plan.order_by:
        raise BadChangelog("order_by= names no column: which rows are the first?")
    for name in (*plan.order_by, *plan.by):
        _require_order(repr(name), frame.schema[name].dataType)
    schema = changelog_schema(frame)
    if plan.rank is None:
        return schema
    _require_apart(columns_of(frame), {plan.rank: None})
    return StructType([*schema.fields[:-2], StructField(plan.rank, IntegerType()), *CHANGE_FIELDS])


def _require_order(name: str, type_: DataType) -> None:
    if has_no_order(type_):
        raise BadChangelog(f"{name}: the column is {type_.simpleString()}, which has no order")


def _changes(frame: DataFrame, change: str) -> DataFrame:
    """A static table as changes."""
    return frame.withColumns({CHANGE: F.lit(change), ORDER: F.lit(0).cast("bigint")})
