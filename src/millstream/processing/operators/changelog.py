"""Changelogs as DataFrames: a table's columns, `_change` and `_order` (base/changes.py).

latest       the table that a static changelog describes
retracting   upserts and deletes as whole rows that go and come
upserting    the way back: the net change of each key
events       every change as a row that stays
where        the rows that meet a condition; one that no longer does is deleted
aggregate    counts, sums, least and greatest values, that follow rows which change and go
distinct     the values that some row has
top          the first rows of each group, in an order
explode      a row for each element of an array
windowed     a row for each window that its time is in
union        the rows of several tables

They work on static frames and on streams, and start no query. Columns made of others are Spark's:
`select`, `withColumn` and `filter` are as right on a changelog as on a table, while the key stays.
What else of Spark would be wrong on a changelog is refused (table_plan.py).
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as RowsOf
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
    mark_rows,
    order_of,
    quoted,
    require_columns,
)
from millstream.processing.operators.changelog_columns import mark_key as named_by
from millstream.processing.operators.changelog_state import net_changes
from millstream.processing.operators.changelog_stream import (
    TopPlan,
    aggregated,
    changelog_schema,
    first_rows,
    net_stream,
    replaced_stream,
)
from millstream.processing.operators.null_groups import NullGroups, with_groups
from millstream.processing.operators.row_changes import CHANGE_FIELDS
from millstream.processing.operators.row_filter import rows_that_meet
from millstream.processing.operators.table_frames import carry, met_condition, table_of
from millstream.processing.operators.table_rows_made import (
    WINDOW,
    one_of_all,
    require_time,
    several_rows,
    windows_of,
)
from millstream.processing.operators.window_types import result_type
from millstream.processing.operators.windows import Window

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
    "events",
    "explode",
    "key_of",
    "latest",
    "mark_key",
    "net_changes",
    "quoted",
    "retracting",
    "top",
    "union",
    "upserting",
    "where",
    "windowed",
]

# Where a row is among those of its key, the last one first: no name of an application.
PLACE = "place "


def latest(frame: DataFrame, key: Names | None = None) -> DataFrame:
    """The table that a static changelog describes: the last row of each key."""
    frame, names = table_of(frame, key)
    if frame.isStreaming:
        raise BadChangelog("latest() is of static frames: a stream has no last row")
    of_key = RowsOf.partitionBy(*map(quoted, names)).orderBy(
        order_of(frame).desc(), is_coming(frame).desc()
    )
    placed = frame.withColumn(PLACE, F.row_number().over(of_key))
    last = placed.filter(quoted(PLACE) == 1)
    return mark_rows(last.filter(is_coming(last)).select(*map(quoted, columns_of(frame))))


def mark_key(frame: DataFrame, key: Names) -> DataFrame:
    """The same table, of which you say that these columns name a row, and no others.

    For a key that was computed. Nothing checks it: two rows with one key would become one.
    """
    return named_by(carry(frame).frame, key)


def retracting(frame: DataFrame, key: Names | None = None) -> DataFrame:
    """Whole rows that go (retract) and come (insert), for what can only add and take away."""
    frame, names = table_of(frame, key)
    if frame.isStreaming:
        return named_by(replaced_stream(frame, names), names, by_value=True)
    return named_by(_changes(latest(frame, names), INSERT), names, by_value=True)


def events(frame: DataFrame, *, change: str = "change", order: str = "order") -> DataFrame:
    """Every change as a row that stays: the history of a table, for all that Spark can do.

    `change` and `order` name the columns that say what happened to the row, and in which order. A
    delete has only the key's columns set.
    """
    given = carry(frame).frame
    taken = {name.lower() for name in columns_of(given)}
    for name in (change, order):
        if name.lower() in taken:
            raise BadChangelog(f"{name} is a column of the table: give the events another name")
    return mark_rows(given.withColumnsRenamed({CHANGE: change, ORDER: order}))


def explode(
    frame: DataFrame,
    column: str,
    *,
    name: str | None = None,
    position: str | None = None,
    key: Names | None = None,
) -> DataFrame:
    """A row for each element of an array column: the changelog of a table of elements.

    `name` is the column of the elements: that of the array if not given. With `position`, a column
    for the place of each from 0 on, the key is the table's and the place. Without, it is the
    table's and the element: equal elements of a row are one, and nulls none.
    """
    table, names = table_of(frame, key)
    whole = retracting(table, names)
    return several_rows(whole, column, names, name=name or column, position=position)


def windowed(frame: DataFrame, window: Window, *, key: Names | None = None) -> DataFrame:
    """A row for each window that its time is in: the changelog of a table with a column `window`.

    `window` is `windows.tumbling(..., on=...)` or `windows.hopping(..., on=...)`. The key is the
    table's and the window. A row without a time is in none.
    """
    table, names = table_of(frame, key)
    on = require_time(table, window.on)
    placed = table.withColumn(WINDOW, windows_of(window.kind, quoted(on)))
    whole = retracting(placed, names)
    return several_rows(whole, WINDOW, names, name=WINDOW, position=None)


def union(
    frames: Mapping[str, DataFrame], *, source: str = "source", key: Names | None = None
) -> DataFrame:
    """The rows of several tables that have the same columns and key, as one table.

    `source` is a column with the name of the table that a row is of; with the key it names a row.
    """
    return one_of_all(frames, source, key)


def upserting(frame: DataFrame, key: Names | None = None) -> DataFrame:
    """One upsert or delete of each key, of however many changes a batch has of it.

    Of a stream it keeps nothing: a delete is passed on also when the key was never there. Where
    one row has become several (`explode` of a frame of whole rows), `key` is that of the row and
    what tells them apart.
    """
    frame, names = table_of(frame, key, several=True)
    if frame.isStreaming:
        return named_by(net_stream(frame, names), names)
    netted = net_stream(frame, names)
    return named_by(netted.filter(is_coming(netted)), names)


def where(frame: DataFrame, condition: Column | str, key: Names | None = None) -> DataFrame:
    """The rows of a table that meet a condition; keeps nothing.

    A change by which a row stops to meet it is a delete, also of a row that was never among those
    that do. Spark's own `filter` of a frame that knows its key becomes this.
    """
    table, names = table_of(frame, key)
    return named_by(rows_that_meet(table, met_condition(table, condition), names), names)


def aggregate(
    frame: DataFrame,
    *,
    by: Names,
    of: Mapping[str, Aggregate],
    key: Names | None = None,
    null_groups: NullGroups = "keep",
) -> DataFrame:
    """Aggregates of a table's rows, by group: the changelog of the results.

    `of` gives each result a name: `windows.count()`, `sum`, `avg`, `min`, `max`, `count_distinct`
    or `collect` of a column, whose values are in ascending order, as a table has no event time to
    go by. `null_groups`: "keep" makes a group of the rows that have a null there, which a view
    refuses; "leave_out" leaves them out and counts them. When a row is updated or
    deleted, its old values are taken back; a group without rows is deleted. `key` names a row of
    `frame`; frames of tables know theirs. Results of a stream are those of its latest rows, to the
    last digit.
    """
    frame, names = table_of(frame, key)
    groups = require_columns(frame, by, what="by")
    if not groups:
        raise BadChangelog("by= names no column: for one row of all, group by a constant column")
    kept = {name: _table_aggregate(name, one) for name, one in of.items()}
    _require_apart(groups, kept)
    schema = _result_schema(frame, groups, kept)
    needed = _only(frame, (*names, *groups, *(one.column for one in kept.values() if one.column)))
    grouped = with_groups(needed, groups, null_groups, names)
    return named_by(aggregated(grouped, names, groups, kept, schema), groups)


def distinct(
    frame: DataFrame,
    columns: Names,
    key: Names | None = None,
    *,
    null_groups: NullGroups = "keep",
) -> DataFrame:
    """The values of these columns that some row has: the changelog of a table whose key they are.

    They come with the first row that has them and go with the last. `null_groups` as in
    `aggregate`.
    """
    return aggregate(frame, by=columns, of={}, key=key, null_groups=null_groups)


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
    frame, names = table_of(frame, key)
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
    return named_by(first_rows(frame, plan, schema), names)


def _only(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """State holds these columns, and no change of another one is looked at."""
    signs = [name for name in (CHANGE, ORDER) if name in frame.columns]
    return frame.select(*map(quoted, dict.fromkeys((*names, *signs))))


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
