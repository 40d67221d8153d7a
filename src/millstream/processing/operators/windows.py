"""Windows over event time: what an application writes.

Two ways. `frame.groupBy(tumbling("1 minute"), "url").count()` is Spark's own aggregation: the
fastest, for tumbling and hopping windows. `aggregate(...)` is ours, for every kind, with rows that
can be taken back: sessions that merge, windows that slide with each event. Both give the same
answers on a static frame, in one batch of a stream and row by row; ours to the last digit.

Does not judge what is late (`lateness.py` does, at the source), nor decide where rows go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from millstream.base.changes import CHANGE
from millstream.processing.operators.aggregates import (
    Aggregate,
    Average,
    Collected,
    Count,
    DistinctCount,
    First,
    Greatest,
    Last,
    Least,
    Sum,
)
from millstream.processing.operators.changelog_columns import mark_key
from millstream.processing.operators.null_groups import NullGroups, with_groups
from millstream.processing.operators.plain_times import from_plain, plain_type, to_plain
from millstream.processing.operators.table_frames import only_rows
from millstream.processing.operators.window_changes import EMITS, Emit
from millstream.processing.operators.window_kinds import (
    MS_US,
    BadWindow,
    Hopping,
    Session,
    Sliding,
    WindowKind,
    window_us,
)
from millstream.processing.operators.window_operator import (
    AT,
    SLOT,
    TIME,
    WindowPlan,
    WindowProcessor,
    over_batch,
)
from millstream.processing.operators.window_types import require_key, result_type
from millstream.processing.reading.event_time import (
    LATE,
    current_event_time,
    event_time_of,
    mark_event_time,
)
from millstream.processing.reading.last_use import LastUse
from millstream.processing.state.state_terms import telling, using

Duration = str | int | float

# Keys share slots, as in `paged_state.py`: a group costs Spark about a millisecond in Python. The
# windows of a slot are read and written as one.
SLOTS = 64
SPARKS_DELAY = "spark.watermarkDelayMs"


class Window(ClassicColumn):
    """Windows at fixed places, as a column for `groupBy` and as the windows of `aggregate`.

    Spark's column is made when it is used: only then the event time is known.
    """

    def __init__(self, kind: Hopping, on: str | None) -> None:
        self.kind = kind
        self.on = on

    @property
    def _jc(self) -> Any:
        on = self.on or current_event_time.get()
        if on is None:
            raise BadWindow(
                "which column is the event time? The topic has none declared: give the window "
                'one, such as tumbling("1 minute", on="at")'
            )
        return F.window(F.col(f"`{on}`"), *_durations(self.kind))._jc


def _durations(kind: Hopping) -> list[str]:
    return [f"{us // MS_US} milliseconds" for us in (kind.size_us, kind.every_us, kind.start_us)]


@dataclass(frozen=True, slots=True)
class MovingWindow:
    """Windows whose places depend on the events. Only for `aggregate`."""

    kind: Session | Sliding
    on: str | None


AnyWindow = Window | MovingWindow


def tumbling(size: Duration, on: str | None = None, *, start: Duration = 0) -> Window:
    """Windows of `size`, one after the other; `start` moves their places, which begin in 1970."""
    return hopping(size, size, on, start=start)


def hopping(
    size: Duration, every: Duration, on: str | None = None, *, start: Duration = 0
) -> Window:
    """Windows of `size`, a new one `every` so often: an event is in several."""
    kind = Hopping(
        size_us=window_us(size, what="size"),
        every_us=window_us(every, what="every"),
        start_us=window_us(start, what="start"),
    )
    return Window(kind, on)


def session(gap: Duration, on: str | None = None) -> MovingWindow:
    """Events of a key with no more than `gap` from one to the next. For `aggregate`."""
    return MovingWindow(Session(gap_us=window_us(gap, what="gap")), on)


def sliding(size: Duration, on: str | None = None) -> MovingWindow:
    """For each event, those of its key in the `size` up to it, itself included. For `aggregate`."""
    return MovingWindow(Sliding(size_us=window_us(size, what="size")), on)


# What is computed of a window; nulls are left out.


def count(column: str | None = None) -> Count:
    return Count(column)


def count_distinct(column: str) -> DistinctCount:
    return DistinctCount(column)


def sum(column: str) -> Sum:
    return Sum(column)


def avg(column: str) -> Average:
    return Average(column)


def min(column: str) -> Least:
    return Least(column)


def max(column: str) -> Greatest:
    return Greatest(column)


def first(column: str) -> First:
    return First(column)


def last(column: str) -> Last:
    return Last(column)


def collect(column: str) -> Collected:
    return Collected(column)


def aggregate(
    frame: DataFrame,
    window: AnyWindow,
    *,
    of: Mapping[str, Aggregate],
    by: str | Sequence[str] = (),
    emit: Emit = "upsert",
    grace: Duration = 0,
    slots: int = SLOTS,
    null_groups: NullGroups = "keep",
) -> DataFrame:
    """The aggregates `of` each window of each key `by`.

    Rows have the key's columns, those of the window, and one for each of `of`. The window is
    `window` (a struct of start and end) for tumbling and hopping ones, `session_start` and
    `session_end` for sessions, and for sliding ones the event time under its own name.

    `emit` says how a window that changes is told: "upsert", the new row (a session whose start
    moved is a delete of the old start and an upsert of the new one); "retract", the old row taken
    back and the new one inserted; "final", once, when the watermark has passed its end. Rows that
    can be taken back have a column `_change`.

    A window takes events until the watermark has reached its end plus `grace`. `grace` and `slots`
    are fixed for the life of a checkpoint. `null_groups`: "keep" makes windows of a null key too,
    which a view refuses; "leave_out" leaves such rows out and counts them.
    """
    frame = only_rows(frame, "windows.aggregate")
    on = _event_time(frame, window)
    _require(frame, on, emit)
    keys = [by] if isinstance(by, str) else [*by]
    for key in keys:
        require_key(key, _type_of(frame, key))
    frame = with_groups(frame, keys, null_groups)
    grace_us = _grace_us(grace)
    plan = WindowPlan(window.kind, tuple(of.values()), emit, len(keys), grace_us)
    rows = _operator_rows(frame, on, keys, plan, slots)
    kept = ("by", keys, "in", slots, "slots", *([f"grace {grace_us} us"] if grace_us else []))
    schema = telling(_operator_schema(frame, keys, plan), plan.kind, *plan.aggregates, *kept)
    told = _run(rows, plan, using(schema, plan.last_use()))
    return _named(told, frame, on, keys, of, plan)


def _grace_us(grace: Duration) -> int:
    grace_us = window_us(grace, what="grace")
    if grace_us < 0:
        raise BadWindow(f"grace={grace!r}: a duration from 0 on, such as grace='1 minute'")
    return grace_us


def _event_time(frame: DataFrame, window: AnyWindow) -> str:
    on = window.on or event_time_of(frame) or current_event_time.get()
    if on is None:
        raise BadWindow(
            f"which of {', '.join(frame.columns)} is the event time? Give the window one: on=..."
        )
    return on


def _require(frame: DataFrame, on: str, emit: Emit) -> None:
    if emit not in EMITS:
        raise BadWindow(f"emit={emit!r}: one of {', '.join(EMITS)}")
    if not isinstance(_type_of(frame, on), TimestampType):
        raise BadWindow(f"the event time {on} is {_type_of(frame, on).simpleString()}: cast it")
    noted = frame.schema[on].metadata
    if emit == "final" and noted.get(LATE) == "correct":
        raise BadWindow(
            'emit="final" tells a window once, but this topic has late="correct", which revises '
            'windows: take emit="upsert" or "retract", or another policy for the late'
        )
    if frame.isStreaming and SPARKS_DELAY not in noted:
        raise BadWindow(
            f"the stream has no watermark on {on}, so that its windows would be kept for ever: "
            f'declare event_time={on!r} for the topic, or call withWatermark("{on}", ...)'
        )


def _type_of(frame: DataFrame, column: str) -> DataType:
    if column not in frame.columns:
        raise BadWindow(f"there is no column {column}: the frame has {', '.join(frame.columns)}")
    return frame.schema[column].dataType


def _operator_rows(
    frame: DataFrame, on: str, keys: list[str], plan: WindowPlan, slots: int
) -> DataFrame:
    key_columns = [_plain(frame, key) for key in keys]
    slot = F.pmod(F.xxhash64(*key_columns), F.lit(slots)) if keys else F.lit(0)
    values = [
        F.lit(1) if one.column is None else _plain(frame, one.column) for one in plan.aggregates
    ]
    at = _plain(frame, on)
    return frame.where(F.col(f"`{on}`").isNotNull()).select(
        slot.cast("int").alias(SLOT),
        _used_until(at, plan.last_use()).alias(TIME, metadata=frame.schema[on].metadata),
        at.alias(AT),
        *[column.alias(f"key_{place}") for place, column in enumerate(key_columns)],
        *[column.alias(f"value_{place}") for place, column in enumerate(values)],
    )


def _used_until(at: Column, use: LastUse) -> Column:
    """What Spark judges a row by: it drops what is not after its watermark, which is at least 0."""
    if use.every_us is not None:
        since = F.try_subtract(at, F.lit(use.start_us))
        at = F.try_subtract(at, F.pmod(since, F.lit(use.every_us)))
    # A time that 64 bits do not hold is in static frames only: a source refuses it.
    return F.timestamp_micros(F.greatest(F.try_add(at, F.lit(use.span_us)), F.lit(MS_US)))


def _plain(frame: DataFrame, column: str) -> Column:
    return to_plain(F.col(f"`{column}`"), _type_of(frame, column))


def _operator_schema(frame: DataFrame, keys: list[str], plan: WindowPlan) -> StructType:
    types: list[DataType] = [
        StringType(),
        *[plain_type(_type_of(frame, key)) for key in keys],
        LongType(),
        LongType(),
        *[plain_type(_result_type(frame, one)) for one in plan.aggregates],
    ]
    return StructType([*map(StructField, plan.columns, types)])


def _result_type(frame: DataFrame, one: Aggregate) -> DataType:
    return result_type(one, None if one.column is None else _type_of(frame, one.column))


def _run(rows: DataFrame, plan: WindowPlan, schema: StructType) -> DataFrame:
    groups = rows.groupBy(SLOT)
    if rows.isStreaming:
        return groups.transformWithState(WindowProcessor(plan), schema, "Update", "EventTime")
    arrow = to_arrow_schema(schema, timezone="UTC")
    return groups.applyInArrow(over_batch(plan, arrow), schema)


def _named(
    told: DataFrame,
    frame: DataFrame,
    on: str,
    keys: list[str],
    of: Mapping[str, Aggregate],
    plan: WindowPlan,
) -> DataFrame:
    """The operator's columns under the names, and with the types, that the application gave."""
    columns = [
        *[
            from_plain(F.col(f"key_{place}"), _type_of(frame, key)).alias(key)
            for place, key in enumerate(keys)
        ],
        *_window_columns(plan.kind, on),
        *[
            from_plain(F.col(f"result_{place}"), _result_type(frame, one)).alias(name)
            for place, (name, one) in enumerate(of.items())
        ],
    ]
    if is_taken_back(plan.kind, plan.emit):
        columns.append(F.col("change").alias(CHANGE))
    named = told.select(columns)
    if CHANGE in named.columns:
        named = mark_key(named, [*keys, _start(plan.kind, on)], by_value=plan.emit == "retract")
    return mark_event_time(named, on) if isinstance(plan.kind, Sliding) else named


def _window_columns(kind: WindowKind, on: str) -> list[Column]:
    start, end = F.timestamp_micros("start"), F.timestamp_micros("end")
    match kind:
        case Hopping():
            return [F.struct(start.alias("start"), end.alias("end")).alias("window")]
        case Session():
            return [start.alias("session_start"), end.alias("session_end")]
        case Sliding():
            return [end.alias(on)]


def _start(kind: WindowKind, on: str) -> str:
    """The column that names a window of a key."""
    match kind:
        case Hopping():
            return "window"
        case Session():
            return "session_start"
        case Sliding():
            return on


def is_taken_back(kind: WindowKind, emit: Emit) -> bool:
    """Whether rows come that are not upserts: then they say what they are."""
    return emit == "retract" or (emit == "upsert" and isinstance(kind, Session))
