"""Tables made of tables where one row becomes several, or several tables become one.

explode    a row for each element of an array
windowed   a row for each window that its time is in
union      the rows of several tables, each with the name of its own

Each answer has a key that tells its rows apart, so that a row that changes or goes takes all that
was made of it along.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.types import ArrayType, TimestampType

from millstream.base.changes import CHANGE, ORDER, UPSERT
from millstream.processing.operators.changelog_columns import (
    BadChangelog,
    Names,
    columns_of,
    has_no_order,
    mark_key,
    order_of,
    quoted,
    require_columns,
)
from millstream.processing.operators.changelog_stream import net_stream
from millstream.processing.operators.table_frames import table_of
from millstream.processing.operators.window_kinds import Hopping

WINDOW = "window"


def several_rows(
    whole: DataFrame, column: str, key: tuple[str, ...], *, name: str, position: str | None
) -> DataFrame:
    """Of whole rows that come and go, a row for each element; its key is theirs and the element,
    or its place."""
    _require_elements(whole, column, name, position)
    others = [quoted(one) for one in whole.columns if one != column]
    if position is None:
        made = F.explode(F.array_distinct(F.filter(quoted(column), _is_there))).alias(name)
    else:
        made = F.posexplode(quoted(column)).alias(position, name)
    wanted = (*key, position or name)
    return mark_key(net_stream(whole.select(*others, made), wanted), wanted)


def _is_there(element: Column) -> Column:
    return element.isNotNull()


def _require_elements(frame: DataFrame, column: str, name: str, position: str | None) -> None:
    (found,) = require_columns(frame, column, what="column")
    type_ = frame.schema[found].dataType
    if not isinstance(type_, ArrayType):
        raise BadChangelog(
            f"column={column!r} is {type_.simpleString()}, not an array: make one of it first, "
            "such as with map_entries"
        )
    if position is None and has_no_order(type_.elementType):
        raise BadChangelog(f"column={column!r} has elements without an order: give position=")
    taken = {one.lower() for one in frame.columns if one != column}
    for one in (name, position):
        if one is not None and one.lower() in taken:
            raise BadChangelog(f"{one} is a column of the table: give another name")


def windows_of(kind: Hopping, at: Column) -> Column:
    """The windows that a time is in, the last one first; none for a null."""
    us = F.unix_micros(at)
    last = us - F.pmod(us - F.lit(kind.start_us), F.lit(kind.every_us))
    first = us - F.lit(kind.size_us) + 1
    starts = F.when(last >= first, F.sequence(last, first, F.lit(-kind.every_us)))
    return F.transform(starts, lambda start: _window(start, kind))


def _window(start: Column, kind: Hopping) -> Column:
    end = F.timestamp_micros(start + F.lit(kind.size_us))
    return F.struct(F.timestamp_micros(start).alias("start"), end.alias("end"))


def require_time(frame: DataFrame, on: str | None) -> str:
    if on is None:
        raise BadChangelog('which column is the time? Give the window one: on="..."')
    (found,) = require_columns(frame, on, what="on")
    type_ = frame.schema[found].dataType
    if not isinstance(type_, TimestampType):
        raise BadChangelog(f"on={on!r} is {type_.simpleString()}: cast it to TIMESTAMP")
    if WINDOW in (name.lower() for name in frame.columns):
        raise BadChangelog(f"{WINDOW} is a column of the table: rename it")
    return found


def one_of_all(frames: Mapping[str, DataFrame], source: str, key: Names | None) -> DataFrame:
    if not frames:
        raise BadChangelog("union() of no table: name at least one")
    tables = {name: table_of(frame, key) for name, frame in frames.items()}
    first, (frame, names) = next(iter(tables.items()))
    for name, (other, its_names) in tables.items():
        if set(columns_of(other)) != set(columns_of(frame)) or set(its_names) != set(names):
            raise BadChangelog(
                f"{name} has the columns {', '.join(columns_of(other))} and the key "
                f"{', '.join(its_names)}; {first} has {', '.join(columns_of(frame))} and "
                f"{', '.join(names)}: select and rename, so that they are the same"
            )
    if source in frame.columns:
        raise BadChangelog(f"source={source!r} is a column of the tables: give another name")
    parts = [_part(other, name, source) for name, (other, _) in tables.items()]
    return mark_key(reduce(DataFrame.unionByName, parts), (source, *names))


def _part(frame: DataFrame, name: str, source: str) -> DataFrame:
    change = F.coalesce(CHANGE, F.lit(UPSERT)) if CHANGE in frame.columns else F.lit(UPSERT)
    own = [quoted(one) for one in columns_of(frame)]
    order = order_of(frame).cast("bigint")
    return frame.select(F.lit(name).alias(source), *own, change.alias(CHANGE), order.alias(ORDER))
