"""Events of devices with wrong clocks, put on the server's clock: `device_clock.py` in Spark.

Three times are needed: when it happened and when it was sent, by the device's clock, and when it
was received, by the server's. Rows pass through; what is kept is a few numbers for each device.
Does not change the watermark of its own stream: to window by corrected times, write them to a
topic that declares them as its event time (docs/guides/time_and_windows.md).
"""

# ruff: noqa: N802, N803  # Spark's names

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Corrupt
from millstream.processing.operators.arrow_rows import rows_of, table_of
from millstream.processing.operators.device_clock import clock_from
from millstream.processing.operators.plain_times import from_plain, plain_type, to_plain
from millstream.processing.operators.table_frames import only_rows
from millstream.processing.operators.window_kinds import MS_US, window_us
from millstream.processing.reading.event_time import mark_event_time
from millstream.processing.state.plain_pickles import dump_plain, load_plain
from millstream.processing.state.state_terms import telling

ADDED = ("corrected_at", "uncertainty_ms", "clock_restarts")
SLOT, DEVICE, EVENT, SENT, RECEIVED = "slot", "device", "event", "sent", "received"
SLOTS = 64
STATE_VERSION = 1


def correct_clock(
    frame: DataFrame,
    *,
    device: str = "device",
    event: str = "at",
    sent: str = "sent_at",
    received: str = "received_at",
    delay_max: str | int | float = "1 minute",
    slots: int = SLOTS,
) -> DataFrame:
    """The frame with `corrected_at`, `uncertainty_ms` and `clock_restarts`.

    `corrected_at` is the event's time by the server's clock. If no message took longer than
    `delay_max`, the true time is at most `uncertainty_ms` before it, and never after it. Events of
    one device keep the order that they have by its clock. `clock_restarts` counts how often its
    clock was found set anew: before and after that, its times do not compare.

    A row is corrected by what came before it, in order of `received`; so that column must not fall
    within what arrives of one device, or answers depend on how rows are split into batches. A row
    without a time of sending, or of the event, has the time received: the true time is not after
    it, and at most `uncertainty_ms` before it if the device's clock is known, or if the event was
    sent when it happened. A row without the time received is passed on without correction.
    """
    frame = only_rows(frame, "correct_clock")
    times = {EVENT: event, SENT: sent, RECEIVED: received}
    _require(frame, device, times)
    plan = SkewPlan(window_us(delay_max, what="delay_max"), _carried(frame))
    kept = f"clocks by {device} of {times}, delay_max {plan.delay_max}, in {slots} slots"
    schema = telling(_operator_schema(frame), kept)
    told = _run(_operator_rows(frame, device, times, slots), plan, schema)
    return mark_event_time(_named(told, frame), ADDED[0])


def _require(frame: DataFrame, device: str, times: Mapping[str, str]) -> None:
    for column in (device, *times.values()):
        if column not in frame.columns:
            raise BadDeclaration(
                f"there is no column {column}: the frame has {', '.join(frame.columns)}"
            )
    for what, column in times.items():
        if not isinstance(frame.schema[column].dataType, TimestampType):
            found = frame.schema[column].dataType.simpleString()
            raise BadDeclaration(f"{what}={column!r} is {found}: cast it to TIMESTAMP")
    if taken := set(ADDED) & set(frame.columns):
        raise BadDeclaration(f"there is a column {min(taken)} already: rename it")


def _carried(frame: DataFrame) -> tuple[str, ...]:
    return tuple(f"column_{place}" for place in range(len(frame.columns)))


def _operator_rows(
    frame: DataFrame, device: str, times: Mapping[str, str], slots: int
) -> DataFrame:
    slot = F.pmod(F.xxhash64(F.col(f"`{device}`")), F.lit(slots))
    return frame.select(
        slot.cast("int").alias(SLOT),
        F.col(f"`{device}`").alias(DEVICE),
        *[F.unix_micros(F.col(f"`{column}`")).alias(what) for what, column in times.items()],
        *[
            to_plain(F.col(f"`{field.name}`"), field.dataType).alias(name)
            for name, field in zip(_carried(frame), frame.schema, strict=True)
        ],
    )


def _operator_schema(frame: DataFrame) -> StructType:
    carried = [
        StructField(name, plain_type(field.dataType))
        for name, field in zip(_carried(frame), frame.schema, strict=True)
    ]
    return StructType([*carried, *[StructField(name, LongType()) for name in ADDED]])


def _run(rows: DataFrame, plan: "SkewPlan", schema: StructType) -> DataFrame:
    groups = rows.groupBy(SLOT)
    if rows.isStreaming:
        return groups.transformWithState(SkewProcessor(plan), schema, "Update", "None")
    arrow = to_arrow_schema(schema, timezone="UTC")
    return groups.applyInArrow(over_batch(plan, arrow), schema)


def _named(told: DataFrame, frame: DataFrame) -> DataFrame:
    corrected_at, *others = ADDED
    return told.select(
        *[
            from_plain(F.col(name), field.dataType).alias(field.name)
            for name, field in zip(_carried(frame), frame.schema, strict=True)
        ],
        F.timestamp_micros(corrected_at).alias(corrected_at),
        *others,
    )


@dataclass(frozen=True, slots=True)
class SkewPlan:
    """What the workers get. A row is (slot, device, event, sent, received, what it carries)."""

    delay_max: int
    carried: tuple[str, ...]

    def told(self, clocks: dict[Any, Any], rows: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Rows with what is added, by order of arrival. `clocks` are changed in place."""
        for _slot, device, event, sent, received, *carried in sorted(rows, key=arrival_of):
            if received is None:
                yield (*carried, None, None, None)
                continue
            clock = clock_from(clocks.get(device), delay_max=self.delay_max)
            if event is None or sent is None:
                at, uncertainty, restarts = clock.of_received(event, received)
            else:
                at, uncertainty, restarts = clock.correct(event, sent=sent, received=received)
                clocks[device] = clock.to_plain()
            yield (*carried, at, -(-uncertainty // MS_US), restarts)


def arrival_of(row: Sequence[Any]) -> tuple[Any, ...]:
    """By the time received, then sent; rows without one change nothing: first, then whole ones."""
    _slot, _device, event, sent, received, *_carried = row
    if received is None:
        return (False, 0, False, 0, 0)
    is_whole = event is not None and sent is not None
    return (True, received, is_whole, sent or 0, event or 0)


class SkewProcessor(StatefulProcessor):
    """One entry of state for each slot of devices (docs/formats/window_state.md)."""

    def __init__(self, plan: SkewPlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._row = Row(*self._plan.carried, *ADDED)
        self._kept = handle.getValueState("clocks", "clocks BINARY")

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        kept = self._kept.get()
        clocks = {} if kept is None else clocks_from(kept[0])
        told = [self._row(*row) for row in self._plan.told(clocks, rows)]
        self._kept.update((dump_plain((STATE_VERSION, clocks)),))
        return iter(told)


def clocks_from(kept: bytes) -> dict[Any, Any]:
    version, clocks = load_plain(kept)
    if version != STATE_VERSION:
        raise Corrupt(
            f"the clocks of this checkpoint have format {version}, known is {STATE_VERSION}: "
            "rebuild the job"
        )
    found: dict[Any, Any] = clocks
    return found


def over_batch(plan: SkewPlan, schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """The same over a static group of rows, in Arrow."""

    def told(table: pa.Table) -> pa.Table:
        return table_of(schema, [*plan.told({}, rows_of(table))])

    return told
