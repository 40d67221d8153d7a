"""Runs a join of a stream with a table in Spark: both sides in one stream, state by key.

The shell around `enrichment_state.py` and `as_of_state.py`. A row of either side becomes one of

    key_0...   the columns that must be equal
    at, row    a row of the stream and its event time, which carries the watermark
    table_row, is_gone, order, from_us   a change of the table

The table's rows have no event time here: Spark drops what is behind the watermark, and a table is
as old as it likes. Static frames go the same way, without time. camelCase is Spark's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import (
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.base.changes import CHANGE
from millstream.base.identity import identity
from millstream.processing.operators.changelog_columns import is_coming, order_of, quoted
from millstream.processing.operators.join_columns import JoinKey, right_columns
from millstream.processing.operators.stream_table import (
    EVER_US,
    Arrival,
    Step,
    StreamTableJoin,
    TableChange,
)
from millstream.processing.operators.stream_table_slot import Brought, JoinSlot
from millstream.processing.reading.event_time import mark_event_time
from millstream.processing.state.paged_state import SLOT, SLOTS, StatePages
from millstream.processing.state.state_terms import telling

# How many versions came too late, in a row of its own: counted and taken out behind the operator.
LATE_VERSIONS = "_late_versions"
OUTPUT = SparkRow("at", "row", "table_row", CHANGE, LATE_VERSIONS)


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What is joined. `at` is the stream's time, `versions` the column since when a row holds."""

    stream: DataFrame
    table: DataFrame
    key: JoinKey
    at: str | None = None
    versions: str | None = None


def run_join(
    join: StreamTableJoin[Any], sides: Sides, *, in_time: bool, keeps_watermark: bool = False
) -> DataFrame:
    """A frame of `at`, `row`, `table_row`, `_change` and `_late_versions`.

    `in_time`: there is a watermark to wait for. `keeps_watermark`: no row is given after it, so
    that what follows can go by the same event time.
    """
    union = _arrivals(sides).union(_changes(sides))
    keys = [f"key_{place}" for place in range(len(sides.key.left))]
    slotted = union.withColumn(SLOT, F.pmod(F.xxhash64(*keys), F.lit(SLOTS)))
    return slotted.groupBy(SLOT).transformWithState(
        JoinProcessor(join, keys=keys, at=sides.at, in_time=in_time),
        telling(_output_schema(union), *_terms(join, sides)),
        outputMode="Append",  # what is given is not taken back here: goes with any mode of a query
        timeMode="EventTime" if in_time else "None",
        eventTimeColumnName="at" if keeps_watermark else "",
    )


def _terms(join: StreamTableJoin[Any], sides: Sides) -> tuple[object, ...]:
    """How long rows wait, and what becomes of those without a match, may change."""
    late_versions = getattr(join, "late_versions", None)
    return type(join).__name__, late_versions, "by", sides.key.left, sides.key.right


def side_by_side(joined: DataFrame, sides: Sides, *, with_change: bool = False) -> DataFrame:
    """The columns of the result under their names, with the stream's event time marked."""
    taken = [*sides.stream.columns, CHANGE] if with_change else sides.stream.columns
    names = right_columns(taken, sides.table.columns, sides.key)
    columns = [_of_stream(name, sides) for name in sides.stream.columns]
    columns += [F.col("table_row")[name].alias(given) for name, given in names.items()]
    frame = joined.select(*columns, *([CHANGE] if with_change else []))
    return frame if sides.at is None else mark_event_time(frame, sides.at)


def _of_stream(name: str, sides: Sides) -> Column:
    """The event time is taken from the column that may have a watermark."""
    return (F.col("at") if name == sides.at else F.col("row")[name]).alias(name)


def _arrivals(sides: Sides) -> DataFrame:
    """The stream's rows. They are first in the union: Spark takes its watermark from there."""
    at = quoted(sides.at) if sides.at else _nothing("timestamp")
    return sides.stream.select(
        *key_columns(sides.key.left, side="key"),
        at.alias("at"),
        F.unix_micros(at).alias("at_us"),
        row_of(sides.stream).alias("row"),
        _nothing(_type_of(sides.table)).alias("table_row"),
        _nothing("boolean").alias("is_gone"),
        _nothing("bigint").alias("order"),
        _nothing("bigint").alias("from_us"),
    )


def _changes(sides: Sides) -> DataFrame:
    return _without_null(sides.table, sides.key.right).select(
        *key_columns(sides.key.right, side="key"),
        _nothing("timestamp").alias("at"),
        _nothing("bigint").alias("at_us"),
        _nothing(_type_of(sides.stream)).alias("row"),
        row_of(sides.table).alias("table_row"),
        (~is_coming(sides.table)).alias("is_gone"),
        order_of(sides.table).alias("order"),
        _from_us(sides).alias("from_us"),
    )


def _nothing(of_type: str | DataType) -> Column:
    return F.lit(None).cast(of_type)


def row_of(frame: DataFrame) -> Column:
    return F.struct(*(quoted(name) for name in frame.columns))


def _type_of(frame: DataFrame) -> DataType:
    return frame.select(row_of(frame).alias("row")).schema["row"].dataType


def key_columns(names: Iterable[str], *, side: str) -> list[Column]:
    return [quoted(name).alias(f"{side}_{place}") for place, name in enumerate(names)]


def _without_null(table: DataFrame, names: Iterable[str]) -> DataFrame:
    """Null equals nothing, in SQL as here."""
    for name in names:
        table = table.filter(quoted(name).isNotNull())
    return table


def _from_us(sides: Sides) -> Column:
    """A row without a time holds since ever; a deletion without one is of all versions."""
    if sides.versions is None:
        return _nothing("bigint")
    from_us = F.unix_micros(quoted(sides.versions).cast("timestamp"))
    since = F.coalesce(from_us, F.lit(EVER_US))
    return F.when(is_coming(sides.table), since).otherwise(from_us)


def _output_schema(union: DataFrame) -> StructType:
    return StructType(
        [
            StructField("at", TimestampType()),
            StructField("row", union.schema["row"].dataType),
            StructField("table_row", union.schema["table_row"].dataType),
            StructField(CHANGE, StringType()),
            StructField(LATE_VERSIONS, LongType()),
        ]
    )


class JoinProcessor(StatefulProcessor):
    """The keys of one slot: their states in pages, and a timer for the first that waits."""

    def __init__(
        self, join: StreamTableJoin[Any], *, keys: list[str], at: str | None, in_time: bool
    ) -> None:
        self._join = join
        self._keys = keys
        self._at = at
        self._in_time = in_time

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._pages = StatePages(handle.getMapState("pages", "name STRING", "page BINARY"))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[SparkRow],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[SparkRow]:
        brought = self._by_key(rows)
        slot = JoinSlot(self._join, self._pages)
        watermark_ms = timerValues.getCurrentWatermarkInMs() if self._in_time else None
        steps = slot.step(brought, watermark_ms=watermark_ms)
        self._finish(slot, due_ms=slot.due_ms(brought))
        return self._rows_of(steps)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[SparkRow]:
        slot = JoinSlot(self._join, self._pages)
        steps = slot.expire(watermark_ms=timerValues.getCurrentWatermarkInMs())
        self._finish(slot, due_ms=slot.due_ms())
        return self._rows_of(steps)

    def close(self) -> None:
        """Nothing is open."""

    def _by_key(self, rows: Iterator[SparkRow]) -> dict[str, Brought]:
        brought: dict[str, Brought] = {}
        for row in rows:
            found = brought.setdefault(identity(row[key] for key in self._keys), Brought())
            if row["row"] is None:
                found.changes.append(_change_from(row))
            else:
                found.arrivals.append(Arrival(row=row["row"], at_us=row["at_us"]))
        return brought

    def _finish(self, slot: JoinSlot, *, due_ms: int | None) -> None:
        """There is always a timer for the first that waits; one too many does no harm."""
        if self._in_time and due_ms is not None:
            self._handle.registerTimer(due_ms)
        slot.save()

    def _rows_of(self, steps: list[Step]) -> Iterator[SparkRow]:
        for joined in chain.from_iterable(step.joined for step in steps):
            at = joined.row[self._at] if self._at else None
            yield OUTPUT(at, joined.row, joined.table_row, joined.change, 0)
        if late_versions := sum(step.late_versions for step in steps):
            yield OUTPUT(None, None, None, None, late_versions)


def _change_from(row: SparkRow) -> TableChange:
    table_row = None if row["is_gone"] else row["table_row"]
    return TableChange(order=row["order"], row=table_row, from_us=row["from_us"])
