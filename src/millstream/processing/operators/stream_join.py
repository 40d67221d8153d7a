"""Two streams joined within a time: Spark's own join, its condition made from both event times.

State is kept as long as a match may come, by Spark's watermark; a row that has none by then is
given alone. Static frames give the same rows. Does not join tables: those have no time.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration, duration_ms
from millstream.processing.operators.changelog_columns import quoted
from millstream.processing.operators.join_columns import (
    JoinKey,
    On,
    join_key,
    require_one_of,
    right_columns,
)
from millstream.processing.operators.table_frames import only_rows
from millstream.processing.reading.event_time import EVENT_TIME, event_time_of, mark_event_time

How = Literal["inner", "left", "right", "full"]
HOWS = ("inner", "left", "right", "full")
Duration = str | float

# What a column is called on its way through the join: no name of an application.
LEFT, RIGHT = "left ", "right "


def within(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On,
    within: Duration | tuple[Duration, Duration],
    how: How = "inner",
) -> DataFrame:
    """Rows of both streams with equal keys whose event times are near.

    `within` is how far they may be apart; or how long before the left row, and how long after it,
    the right one may be. Both ends belong to it. The result has the columns of the left, then those
    of the right, `_right` behind names that are taken; its event time is the left one, or with
    "right" the right one.
    """
    require_one_of(how, HOWS, what="how")
    left, right = only_rows(left, "joins.within"), only_rows(right, "joins.within")
    key = join_key(on, left.columns, right.columns)
    times = (_time_of(left, side="left"), _time_of(right, side="right"))
    matches = [*_equal(key), *_no_null_key(key, how), _is_near(*times, span_ms(within))]
    joined = _named(left, LEFT).join(_named(right, RIGHT), matches, JOIN_TYPES[how])
    names = right_columns(left.columns, right.columns, key)
    columns = [_of_left(name, key, how) for name in left.columns]
    columns += [quoted(RIGHT + name).alias(given) for name, given in names.items()]
    return _with_one_time(joined.select(*columns), times[0], names[times[1]], how)


# Spark's names.
JOIN_TYPES = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def span_ms(within: Duration | tuple[Duration, Duration]) -> tuple[int, int]:
    """How far before and after."""
    before, after = within if isinstance(within, tuple) else (within, within)
    return duration_ms(before, what="within"), duration_ms(after, what="within")


def _time_of(frame: DataFrame, *, side: str) -> str:
    found = event_time_of(frame)
    if found is None:
        raise BadDeclaration(
            f"the {side} side has no event time to be near by: declare its topic with event_time="
        )
    return found


def _named(frame: DataFrame, side: str) -> DataFrame:
    return frame.select(*(quoted(name).alias(side + name) for name in frame.columns))


def _equal(key: JoinKey) -> list[Column]:
    pairs = zip(key.left, key.right, strict=True)
    return [quoted(LEFT + left) == quoted(RIGHT + right) for left, right in pairs]


def _no_null_key(key: JoinKey, how: How) -> list[Column]:
    """Null equals nothing. Spark leaves such rows out before other joins; in a full one of streams
    it looks for the other side by the bytes of the key, where nulls are equal. So rows with a null
    have a word of their side beside the key, which the other side never has."""
    if how != "full":
        return []
    sides = ((LEFT, key.left), (RIGHT, key.right))
    words = [F.when(_has_null(side, names), side).otherwise("") for side, names in sides]
    return [words[0] == words[1]]


def _has_null(side: str, names: Sequence[str]) -> Column:
    return reduce(or_, (quoted(side + name).isNull() for name in names))


def _is_near(left_time: str, right_time: str, span: tuple[int, int]) -> Column:
    left, right = quoted(LEFT + left_time), quoted(RIGHT + right_time)
    before, after = (F.expr(f"interval {ms} milliseconds") for ms in span)
    return (right >= left - before) & (right <= left + after)


def _of_left(name: str, key: JoinKey, how: How) -> Column:
    """A column that both sides are joined on by one name is there once; where the left row may be
    missing, from the right one."""
    if name not in key.shared or how in ("inner", "left"):
        return quoted(LEFT + name).alias(name)
    return F.coalesce(quoted(LEFT + name), quoted(RIGHT + name)).alias(name)


def _with_one_time(frame: DataFrame, left_time: str, right_time: str, how: How) -> DataFrame:
    """Spark goes on by one event time: the other becomes a plain column."""
    chosen, other = (right_time, left_time) if how == "right" else (left_time, right_time)
    columns = [
        quoted(name).alias(name, metadata={EVENT_TIME: False}) if name == other else quoted(name)
        for name in frame.columns
    ]
    return mark_event_time(frame.select(*columns), chosen)
