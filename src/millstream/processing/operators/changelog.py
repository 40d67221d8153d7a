"""Changelogs as DataFrames: a table's columns, `_change` and `_order` (base/changes.py).

latest       the table that a static changelog describes
retracting   upserts and deletes as whole rows that go and come
upserting    the way back: the net change of each key
aggregate    counts, sums and averages that go down when rows do

They work on static frames and on streams, and start no query.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.types import DataType, LongType, StructField, StructType

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
from millstream.processing.operators.aggregates import Aggregate, Average, Count, Sum
from millstream.processing.operators.changelog_columns import (
    BadChangelog,
    Names,
    columns_of,
    is_coming,
    key_of,
    key_or_marked,
    mark_key,
    order_of,
    quoted,
    require_columns,
)
from millstream.processing.operators.changelog_state import LinearAggregate, net_changes
from millstream.processing.operators.changelog_stream import (
    aggregate_stream,
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
    "key_of",
    "latest",
    "mark_key",
    "net_changes",
    "quoted",
    "retracting",
    "upserting",
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


def aggregate(
    frame: DataFrame,
    *,
    by: Names,
    of: Mapping[str, Aggregate],
    key: Names | None = None,
) -> DataFrame:
    """Counts, sums and averages of a table's rows, by group: the changelog of the results.

    `of` gives each result a name: `windows.count()`, `windows.sum("amount")`, `windows.avg(...)`.
    When a row is updated or deleted, its old values are taken back; a group without rows is
    deleted. `key` names a row of `frame`; frames of tables know theirs.
    """
    names = key_or_marked(frame, key)
    groups = require_columns(frame, by, what="by")
    linear = {name: _linear(name, one) for name, one in of.items()}
    schema = _result_schema(frame, groups, linear)
    if frame.isStreaming:
        return mark_key(aggregate_stream(frame, names, groups, linear, schema), groups)
    results = [_native(one).alias(name) for name, one in linear.items()]
    grouped = latest(frame, names).groupBy(*map(quoted, groups)).agg(*results)
    return mark_key(_changes(grouped, UPSERT), groups)


def _result_schema(
    frame: DataFrame, by: tuple[str, ...], of: Mapping[str, LinearAggregate]
) -> StructType:
    """All may be null: a delete has only its key."""
    results = [StructField(name, _result_type(frame, name, one)) for name, one in of.items()]
    groups = [StructField(name, frame.schema[name].dataType) for name in by]
    return StructType([*groups, *results, *CHANGE_FIELDS])


def _linear(name: str, one: Aggregate) -> LinearAggregate:
    if isinstance(one, Count | Sum | Average):
        return one
    raise BadChangelog(
        f"{name}: of a table count, sum and avg are kept; {one.function} does not say what is left "
        "when a row goes"
    )


def _result_type(frame: DataFrame, name: str, one: LinearAggregate) -> DataType:
    if one.column is None:
        return LongType()
    (column,) = require_columns(frame, one.column, what=name)
    return result_type(one, frame.schema[column].dataType)


def _native(one: LinearAggregate) -> Column:
    function = {Count: F.count, Sum: F.sum, Average: F.avg}[type(one)]
    return function(F.lit(1) if one.column is None else quoted(one.column))


def _changes(frame: DataFrame, change: str) -> DataFrame:
    """A static table as changes."""
    return frame.withColumns({CHANGE: F.lit(change), ORDER: F.lit(0).cast("bigint")})
